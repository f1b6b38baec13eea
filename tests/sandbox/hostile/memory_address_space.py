# Tries to reserve the whole address space. Must end in: out-of-memory|exception
def unlearning(net, retain, forget, validation):
    import mmap

    kept = [mmap.mmap(-1, 1 << 44)]
