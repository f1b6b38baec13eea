# Tries to resolve a name. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        socket.getaddrinfo("example.org", 443)
    except OSError:
        return
    raise AssertionError("breach")
