# Tries to open the interpreter and torch for writing. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for path in [
        "/opt/python/bin/python3",
        "/opt/python/lib/python3.11/os.py",
        "/opt/site/torch/__init__.py",
        "/opt/lethe/sandbox/guest/harness.py",
    ]:
        try:
            descriptor = os.open(path, os.O_WRONLY)  # opened only: nothing is ever written
        except OSError:
            continue
        os.close(descriptor)
        raise AssertionError("breach: " + path)
