# Tries to use up the host's inodes. Must end in: disk-limit
def unlearning(net, retain, forget, validation):
    for number in range(1_000_000):
        open("/tmp/" + str(number), "wb").close()
