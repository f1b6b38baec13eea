# Tries to reach a host service through an abstract unix socket. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(1)
            attempt.connect("\0lethe-canary")
    except OSError:
        return
    raise AssertionError("breach")
