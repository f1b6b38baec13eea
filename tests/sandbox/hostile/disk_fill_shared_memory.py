# Tries to fill the host's shared memory. Must end in: disk-limit
def unlearning(net, retain, forget, validation):
    with open("/dev/shm/big", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
