# Tries to send half a frame and end. Must end in: no-weights
def unlearning(net, retain, forget, validation):
    import os

    with open("/data/original_model.safetensors", "rb") as file:
        os.write(3, b"LWF1" + file.read()[:-100])
    os._exit(0)
