# Tries to run for ever. Must end in: timeout|time-limit
def unlearning(net, retain, forget, validation):
    while True:
        pass
