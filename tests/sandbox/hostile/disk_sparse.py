# Tries to make a file of a terabyte. Must end in: disk-limit
def unlearning(net, retain, forget, validation):
    import os

    with open("/scratch/sparse", "wb") as file:
        os.ftruncate(file.fileno(), 1 << 40)
