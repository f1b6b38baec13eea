# Tries to use memory that no process owns. Must end in: out-of-memory
def unlearning(net, retain, forget, validation):
    import mmap
    import time

    kept = []
    for _ in range(64):
        page = mmap.mmap(-1, 16 << 20)
        page.write(b"x" * (16 << 20))
        kept.append(page)
    time.sleep(60)
