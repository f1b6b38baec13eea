# Tries to start threads without end. Must end in: process-limit|out-of-memory
def unlearning(net, retain, forget, validation):
    import threading
    import time

    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
