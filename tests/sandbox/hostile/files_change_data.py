# Tries to open the split's data for writing. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for path in ["/data/retain.safetensors", "/data/original_model.safetensors", "/data/network.json"]:
        try:
            descriptor = os.open(path, os.O_WRONLY)  # opened only: nothing is ever written
        except OSError:
            continue
        os.close(descriptor)
        raise AssertionError("breach: " + path)
