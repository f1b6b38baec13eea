# Tries to replace the filter by one of its own. Must end in: weights
def unlearning(net, retain, forget, validation):
    import ctypes

    if ctypes.CDLL(None).prctl(22, 2, 0, 0, 0) == 0:
        raise AssertionError("breach")
