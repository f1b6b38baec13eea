# Tries to read the machine's own description. Must end in: weights
def unlearning(net, retain, forget, validation):
    for path in [
        "/sys/class/dmi/id/product_uuid",
        "/sys/kernel/notes",
        "/boot/vmlinuz",
        "/run/systemd/private",
        "/var/run/docker.sock",
        "/sys/fs/cgroup/cgroup.procs",
    ]:
        try:
            with open(path, "rb") as file:
                file.read(16)
        except OSError:
            continue
        raise AssertionError("breach: " + path)
