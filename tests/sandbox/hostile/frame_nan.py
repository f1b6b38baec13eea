# Tries to send not-a-number past the harness's own check. Must end in: non-finite-weights
def unlearning(net, retain, forget, validation):
    import os

    with open("/data/original_model.safetensors", "rb") as file:
        content = bytearray(file.read())
    content[-4:] = bytes.fromhex("0000c07f")
    os.write(3, b"LWF1" + content)
    os._exit(0)
