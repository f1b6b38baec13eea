# Tries to send bytes that are no frame. Must end in: wrong-weights
def unlearning(net, retain, forget, validation):
    import os

    os.write(3, os.urandom(64))
    while True:
        pass
