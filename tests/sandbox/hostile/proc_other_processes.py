# Tries to see processes that are not the run's own. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    if others or os.getpid() != 1:
        raise AssertionError("breach: " + str(others))
