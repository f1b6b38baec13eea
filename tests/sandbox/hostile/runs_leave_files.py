# Tries to leave files for the next run. Must end in: weights
def unlearning(net, retain, forget, validation):
    import os

    for folder in ("/scratch", "/tmp", "/dev/shm"):
        if os.listdir(folder):
            raise AssertionError("breach: " + folder)
    for folder in ("/scratch", "/dev/shm"):
        with open(folder + "/note", "w") as file:
            file.write("from an earlier run")
