# Tries to call through the x32 table. Must end in: killed
import ctypes


def unlearning(net, retain, forget, validation):
    ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 39))
    raise AssertionError("breach")
