# Tries to use up the host's memory. Must end in: out-of-memory
def unlearning(net, retain, forget, validation):
    kept = []
    while True:
        kept.append(bytearray(16 << 20))
