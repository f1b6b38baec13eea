# Tries to take a processor for itself. Must end in: weights
import ctypes
import platform

LIBC = ctypes.CDLL(None, use_errno=True)


def refused(number, *arguments):
    """Whether the kernel turned the call away (EPERM, EACCES or ENOSYS) rather than looked at its arguments."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return LIBC.syscall(ctypes.c_long(number), *wide) == -1 and ctypes.get_errno() in (1, 13, 38)


def unlearning(net, retain, forget, validation):
    if platform.machine() == "x86_64" and not refused(144, 0, 1, b"\x63\0\0\0"):
        raise AssertionError("breach")
