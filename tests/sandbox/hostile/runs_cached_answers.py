# Tries to keep earlier models to return averaged copies. Must end in: weights
def unlearning(net, retain, forget, validation):
    import glob
    import os

    if any(os.path.getsize(path) for path in glob.glob("/scratch/**", recursive=True) if os.path.isfile(path)):
        raise AssertionError("breach")
    with open("/scratch/model", "wb") as file:
        file.write(bytes(1000))
