# Tries to nest folders without end. Must end in: disk-limit|exception
def unlearning(net, retain, forget, validation):
    import os

    while True:
        os.mkdir("a")
        os.chdir("a")
