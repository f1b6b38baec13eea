# Tries to read the host's accounts and keys. Must end in: weights
def unlearning(net, retain, forget, validation):
    for path in ["/etc/passwd", "/etc/shadow", "/root/.ssh/id_rsa", "/etc/ssl/private", "/etc/machine-id"]:
        try:
            with open(path, "rb") as file:
                file.read(16)
        except OSError:
            continue
        raise AssertionError("breach: " + path)
