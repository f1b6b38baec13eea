# Tries to open a TCP socket over IPv6. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(1)
            attempt.connect(("::1", 47113))
    except OSError:
        return
    raise AssertionError("breach")
