# Tries to print without end. Must end in: log-limit
def unlearning(net, retain, forget, validation):
    while True:
        print("x" * 1000)
