# Tries to occupy a worker with a heartbeat of work. Must end in: idle|timeout
def unlearning(net, retain, forget, validation):
    import time

    while True:
        time.sleep(0.5)
