# Tries to create files outside the scratch space. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for folder in ("/", "/data", "/submission", "/opt", "/opt/site", "/dev", "/proc", "/usr/lib", "/stage", "/lib"):
        try:
            descriptor = os.open(folder + "/lethe-breach", os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError:
            continue
        os.close(descriptor)
        raise AssertionError("breach: " + folder)
