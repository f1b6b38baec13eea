# Tries to send a pickle that runs code when it is loaded. Must end in: wrong-weights
def unlearning(net, retain, forget, validation):
    import os
    import pickle

    class Attack:
        def __reduce__(self):
            return (os.system, ("id",))

    os.write(3, pickle.dumps(Attack()))
    os._exit(0)
