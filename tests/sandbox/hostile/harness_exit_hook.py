# Tries to run code after its time through an exit hook. Must end in: weights
def unlearning(net, retain, forget, validation):
    import atexit
    import os

    atexit.register(lambda: os.system("sleep 60"))
