# Tries to open control groups for writing. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for path in ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/pids/pids.max"]:
        try:
            descriptor = os.open(path, os.O_WRONLY)  # opened only: nothing is ever written
        except OSError:
            continue
        os.close(descriptor)
        raise AssertionError("breach: " + path)
