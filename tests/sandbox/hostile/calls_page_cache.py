# Tries to ask and to change which pages of the host's files are in memory. Must end in: weights
import ctypes
import errno
import mmap
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
NO_WAIT, PAGE_OUT, NO_SUCH_ADVICE = 8, 21, 99
PREADV2, READAHEAD, MINCORE = 327, 187, 27


def answer(number, *arguments):
    return LIBC.syscall(*(ctypes.c_long(value) for value in (number, *arguments))), ctypes.get_errno()


def unlearning(net, retain, forget, validation):
    if platform.machine() != "x86_64":
        return
    file = os.open("/data/network.json", os.O_RDONLY)
    for number, *arguments in ((PREADV2, file, 0, 0, 0, 0, NO_WAIT), (READAHEAD, file, 0, 4096), (MINCORE, 0, 0, 0)):
        if answer(number, *arguments) != (-1, errno.ENOSYS):
            raise AssertionError("breach")
    os.posix_fadvise(file, 0, 0, NO_SUCH_ADVICE)  # raises where a kernel looks at it
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as view:
        view.madvise(PAGE_OUT, 0, 1)
    if LIBC.madvise(ctypes.c_void_p(1), ctypes.c_size_t(1), PAGE_OUT) != 0:  # no page begins there
        raise AssertionError("breach")
