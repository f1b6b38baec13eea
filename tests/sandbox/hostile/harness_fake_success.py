# Tries to end successfully without weights. Must end in: no-weights
def unlearning(net, retain, forget, validation):
    import os

    os._exit(0)
