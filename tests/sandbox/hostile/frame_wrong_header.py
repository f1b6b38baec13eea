# Tries to send weights under another header. Must end in: wrong-weights
def unlearning(net, retain, forget, validation):
    import os

    os.write(3, b"LWF1" + (2**63).to_bytes(8, "little") + b"{" * 100_000)
    while True:
        pass
