# Tries to leave a daemon behind. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os
    import time

    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(1)
        os._exit(0)
    os.wait()
