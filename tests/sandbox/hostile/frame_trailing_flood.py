# Tries to send a good frame and then gigabytes. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    with open("/data/original_model.safetensors", "rb") as file:
        os.write(3, b"LWF1" + file.read())
    while True:
        os.write(3, bytes(1 << 20))
