# Tries to run for ever before the function is called. Must end in: timeout|cpu-time
while True:
    pass


def unlearning(net, retain, forget, validation):
    pass
