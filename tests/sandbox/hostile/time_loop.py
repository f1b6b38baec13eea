# Tries to run for ever. Must end in: timeout|cpu-time
def unlearning(net, retain, forget, validation):
    while True:
        pass
