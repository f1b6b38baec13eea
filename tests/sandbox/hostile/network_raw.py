# Tries to open a raw socket. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW) as attempt:
            attempt.settimeout(1)
            pass
    except OSError:
        return
    raise AssertionError("breach")
