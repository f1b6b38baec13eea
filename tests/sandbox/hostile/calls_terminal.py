# Tries to type into the operator's terminal. Must end in: weights
def unlearning(net, retain, forget, validation):
    import fcntl

    for descriptor in (0, 1, 2):
        try:
            fcntl.ioctl(descriptor, 0x5412, b"x")
        except OSError:
            continue
        raise AssertionError("breach")
