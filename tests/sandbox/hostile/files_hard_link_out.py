# Tries to keep a read-only file writable through a hard link. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    try:
        os.link("/data/network.json", "/scratch/mine")
    except OSError:
        return
    raise AssertionError("breach")
