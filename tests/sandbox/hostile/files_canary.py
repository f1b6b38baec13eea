# Tries to read a world-readable file of the host. Must end in: weights
def unlearning(net, retain, forget, validation):
    import glob

    for root in ["", "/var", "/proc/1/root", "/proc/self/root/.."]:
        for path in glob.glob(root + "/tmp/lethe-canary-*/secret"):
            with open(path, "rb") as file:
                file.read(16)
            raise AssertionError("breach: " + path)
