# Tries to end while a child holds the frame pipe open. Must end in: no-weights
def unlearning(net, retain, forget, validation):
    import os
    import time

    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
