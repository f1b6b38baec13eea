# Tries to list and read other teams' submissions. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    try:
        names = os.listdir("/stage")
    except OSError:
        names = []
    if names or len(os.listdir("/submission")) != 1:
        raise AssertionError("breach")
