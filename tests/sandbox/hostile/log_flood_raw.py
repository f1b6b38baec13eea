# Tries to print without end past Python's own streams. Must end in: log-limit
def unlearning(net, retain, forget, validation):
    import os

    while True:
        os.write(2, bytes(1 << 16))
