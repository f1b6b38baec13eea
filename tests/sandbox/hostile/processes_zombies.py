# Tries to fill the process table with the dead. Must end in: process-limit|time-limit|timeout
def unlearning(net, retain, forget, validation):
    import os

    while True:
        if os.fork() == 0:
            os._exit(0)
