# Tries to open disks, memory and the kernel's log. Must end in: weights
def unlearning(net, retain, forget, validation):
    for path in [
        "/dev/mem",
        "/dev/kmem",
        "/dev/port",
        "/dev/vda",
        "/dev/sda",
        "/dev/nvme0n1",
        "/dev/kmsg",
        "/dev/tty",
        "/dev/console",
        "/dev/ptmx",
        "/dev/kvm",
        "/dev/fuse",
        "/dev/net/tun",
    ]:
        try:
            with open(path, "rb") as file:
                file.read(16)
        except OSError:
            continue
        raise AssertionError("breach: " + path)
