# Tries to read a world-readable file of the host. Must end in: weights
def unlearning(net, retain, forget, validation):
    for path in [
        "/tmp/lethe-canary/secret",
        "/var/tmp/lethe-canary/secret",
        "/proc/1/root/tmp/lethe-canary/secret",
        "/proc/self/root/../tmp/lethe-canary/secret",
    ]:
        try:
            with open(path, "rb") as file:
                file.read(16)
        except OSError:
            continue
        raise AssertionError("breach: " + path)
