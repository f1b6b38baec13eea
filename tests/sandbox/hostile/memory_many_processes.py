# Tries to use memory in many processes. Must end in: out-of-memory
def unlearning(net, retain, forget, validation):
    import os
    import time

    for _ in range(12):
        if os.fork() == 0:
            kept = bytearray(os.urandom(1)) * (48 << 20)
            time.sleep(60)
    time.sleep(60)
