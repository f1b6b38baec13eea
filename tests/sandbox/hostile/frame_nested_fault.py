# Tries to exhaust the parser of faults. Must end in: exception
def unlearning(net, retain, forget, validation):
    import os

    body = b"[" * 4000
    os.write(3, b"LFF1" + len(body).to_bytes(2, "little") + body)
    os._exit(0)
