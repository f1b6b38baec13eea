# Tries to run for ever before the function is called. Must end in: timeout|time-limit
while True:
    pass


def unlearning(net, retain, forget, validation):
    pass
