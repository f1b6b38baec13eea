# Tries to reach the hypervisor's host through VSOCK. Must end in: weights
def unlearning(net, retain, forget, validation):
    import socket

    try:
        with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(1)
            pass
    except OSError:
        return
    raise AssertionError("breach")
