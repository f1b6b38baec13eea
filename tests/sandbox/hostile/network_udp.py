# Tries to send a datagram to a name server. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attempt:
            attempt.settimeout(1)
            attempt.sendto(b"lethe", ("8.8.8.8", 53))
    except OSError:
        return
    raise AssertionError("breach")
