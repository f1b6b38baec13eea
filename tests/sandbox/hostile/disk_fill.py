# Tries to fill the host's disk. Must end in: disk-limit
def unlearning(net, retain, forget, validation):
    with open("/scratch/big", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
