# Tries to open the kernel's settings for writing. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
        "/proc/self/../sys/kernel/hostname",
    ]:
        try:
            descriptor = os.open(path, os.O_WRONLY)  # opened only: nothing is ever written
        except OSError:
            continue
        os.close(descriptor)
        raise AssertionError("breach: " + path)
