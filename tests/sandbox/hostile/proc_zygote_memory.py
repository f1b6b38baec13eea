# Tries to read the memory of the process that forked it. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for pid in (os.getppid(), 2, 3):
        try:
            with open("/proc/" + str(pid) + "/mem", "rb"):
                pass
        except OSError:
            continue
        raise AssertionError("breach")
