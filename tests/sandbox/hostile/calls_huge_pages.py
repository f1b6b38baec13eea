# Tries to take the huge pages that the host has put aside, which no memory limit counts. Must end in: weights
import ctypes
import errno
import mmap

HUGE, BYTES = 0x40000, 2 << 20
NO_FILE, FAILED = -1, ctypes.c_void_p(-1).value


def unlearning(net, retain, forget, validation):
    # A host that has none answers alike; a length that is not one of pages tells them apart: it is refused first.
    for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        got = libc.mmap(None, ctypes.c_size_t(0), 3, flags | mmap.MAP_ANONYMOUS | HUGE, NO_FILE, ctypes.c_long(0))
        if (got, ctypes.get_errno()) != (FAILED, errno.ENOMEM):  # the kernel's own answer to no length is EINVAL
            raise AssertionError("breach")
        got = libc.mmap(None, ctypes.c_size_t(BYTES), 3, flags | mmap.MAP_ANONYMOUS | HUGE, NO_FILE, ctypes.c_long(0))
        if got != FAILED:
            raise AssertionError("breach")
