# Tries to call through the 32-bit table, whose numbers mean other calls. Must end in: killed
import ctypes
import mmap


def execute(code):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()


def unlearning(net, retain, forget, validation):
    execute(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
    raise AssertionError("breach")
