# Tries to read the kernel's memory and symbols. Must end in: weights
def unlearning(net, retain, forget, validation):
    for path in [
        "/proc/kcore",
        "/proc/kallsyms",
        "/proc/kmsg",
        "/proc/iomem",
        "/proc/keys",
        "/proc/sys/kernel/random/boot_id",
        "/proc/timer_list",
        "/proc/config.gz",
    ]:
        try:
            with open(path, "rb") as file:
                file.read(16)
        except OSError:
            continue
        raise AssertionError("breach: " + path)
