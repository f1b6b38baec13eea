# Tries to have the host put its own files on disk, which empties its disk's cache. Must end in: weights
import ctypes
import os

NO_FILE = 10**6
LIBC = ctypes.CDLL(None, use_errno=True)


def unlearning(net, retain, forget, validation):
    with open("/data/network.json") as file:
        os.fsync(file)  # ordinary code may ask
    # No such file: only a kernel that looks at it can say so.
    if LIBC.fsync(NO_FILE) or LIBC.fdatasync(NO_FILE) or LIBC.sync_file_range(NO_FILE, 0, 0, 2):
        raise AssertionError("breach")
    if LIBC.msync(ctypes.c_void_p(1), ctypes.c_size_t(1), 4):  # no page begins there
        raise AssertionError("breach")
