# Tries to open the kernel's crypto sockets. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as attempt:
            attempt.settimeout(1)
            pass
    except OSError:
        return
    raise AssertionError("breach")
