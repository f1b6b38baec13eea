# Tries to use up the host's memory. Must end in: out-of-memory; behind gVisor: out-of-memory|time-limit|timeout
def unlearning(net, retain, forget, validation):
    kept = []
    while True:
        kept.append(bytearray(16 << 20))
