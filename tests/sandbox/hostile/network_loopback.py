# Tries to reach a service on the host's loopback. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(1)
            attempt.connect(("127.0.0.1", 47113))
    except OSError:
        return
    raise AssertionError("breach")
