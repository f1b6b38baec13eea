# Tries to write a message into the times of the host's device nodes. Must end in: weights
import os


def unlearning(net, retain, forget, validation):
    for name in ("null", "zero", "full", "random", "urandom"):
        try:
            os.utime(f"/dev/{name}")
        except OSError:
            continue
        raise AssertionError("breach")
    with open("/dev/null", "wb") as sink:  # what it is for still works
        sink.write(b"x")
