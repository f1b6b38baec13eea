# Tries to send a fault longer than its cap. Must end in: wrong-weights
def unlearning(net, retain, forget, validation):
    import os

    os.write(3, b"LFF1" + b"\xff\xff" + b"x" * 65535)
    os._exit(0)
