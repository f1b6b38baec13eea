# Tries to have the kernel hand its core dumps to the host's own program again. Must end in: weights
import resource


def unlearning(net, retain, forget, validation):
    if resource.getrlimit(resource.RLIMIT_CORE) not in ((1, 1), (0, 0)):  # 0 only where the host forbids more
        raise AssertionError("breach")
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError):
        return
    raise AssertionError("breach")
