# Tries to fork into namespaces of its own. Must end in: weights
import ctypes

LIBC = ctypes.CDLL(None, use_errno=True)


def refused(number, *arguments):
    """Whether the kernel turned the call away (EPERM, EACCES or ENOSYS) rather than looked at its arguments."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return LIBC.syscall(ctypes.c_long(number), *wide) == -1 and ctypes.get_errno() in (1, 13, 38)


def unlearning(net, retain, forget, validation):
    if not refused(56, 0x10000000 | 17, 0, 0, 0, 0) or not refused(435, 0, 0):
        raise AssertionError("breach")
