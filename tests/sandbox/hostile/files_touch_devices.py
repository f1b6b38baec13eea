# Tries to write a message into the times of the host's device nodes. Must end in: weights
import os


def unlearning(net, retain, forget, validation):
    nodes = [entry.path for entry in os.scandir("/dev") if not entry.is_dir() and not entry.is_symlink()]
    assert "/dev/null" in nodes
    for node in nodes:
        try:
            os.utime(node)
        except OSError:
            continue
        raise AssertionError("breach")
    with open("/dev/null", "wb") as sink:  # what it is for still works
        sink.write(b"x")
