# Tries to read the hidden half of the split beside the visible one. Must end in: weights
def unlearning(net, retain, forget, validation):
    for path in ["/data/../hidden/test.safetensors", "/data/../hidden/secret", "/hidden/secret", "/data/hidden/secret"]:
        try:
            with open(path, "rb") as file:
                file.read(16)
        except OSError:
            continue
        raise AssertionError("breach: " + path)
