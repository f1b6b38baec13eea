# Tries to occupy a worker without doing anything. Must end in: idle
def unlearning(net, retain, forget, validation):
    import time

    time.sleep(3600)
