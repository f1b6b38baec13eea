# Tries to close every descriptor. Must end in: no-weights
def unlearning(net, retain, forget, validation):
    import os

    os.closerange(0, 256)
    while True:
        pass
