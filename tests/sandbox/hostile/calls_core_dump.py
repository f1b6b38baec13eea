# Tries to leave a core dump with the data in it on the host. Must end in: killed
def unlearning(net, retain, forget, validation):
    import ctypes
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))
    except (OSError, ValueError):
        ctypes.string_at(0)
    raise AssertionError("breach")
