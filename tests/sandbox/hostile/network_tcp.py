# Tries to open a TCP connection to the internet. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(1)
            attempt.connect(("1.1.1.1", 443))
    except OSError:
        return
    raise AssertionError("breach")
