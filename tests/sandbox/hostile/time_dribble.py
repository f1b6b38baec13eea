# Tries to send the frame a byte at a time to hold the worker. Must end in: idle|timeout
def unlearning(net, retain, forget, validation):
    import os
    import time

    for byte in b"LWF1" + bytes(1000):
        os.write(3, bytes([byte]))
        time.sleep(0.2)
