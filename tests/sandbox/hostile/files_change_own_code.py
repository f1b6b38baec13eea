# Tries to open the submission's own files for writing. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for path in ["/submission/submission.py"]:
        try:
            descriptor = os.open(path, os.O_WRONLY)  # opened only: nothing is ever written
        except OSError:
            continue
        os.close(descriptor)
        raise AssertionError("breach: " + path)
