# Tries to leave through a symbolic link in the scratch space. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for target in ("/proc/1/root/etc", "../../../../etc", "/data/../../etc"):
        os.symlink(target, "/scratch/link")
        try:
            os.listdir("/scratch/link")
        except OSError:
            os.unlink("/scratch/link")
            continue
        raise AssertionError("breach: " + target)
