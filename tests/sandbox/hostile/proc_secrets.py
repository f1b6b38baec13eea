# Tries to find the launcher's secrets in environments and arguments. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        for file in ("environ", "cmdline"):
            try:
                with open("/proc/" + name + "/" + file, "rb") as entry:
                    text = entry.read()
            except OSError:
                continue
            if b"CANARY" in text or b"secret" in text or b"hidden" in text:
                raise AssertionError("breach")
    if any("CANARY" in name for name in os.environ):
        raise AssertionError("breach")
