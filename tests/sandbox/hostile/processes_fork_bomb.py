# Tries to fork without end. Must end in: process-limit|timeout|time-limit|out-of-memory
def unlearning(net, retain, forget, validation):
    import os

    while True:
        try:
            os.fork()
        except OSError:
            if os.getpid() == 1:
                raise
