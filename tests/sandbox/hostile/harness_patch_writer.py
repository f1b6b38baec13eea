# Tries to change the harness's own writer. Must end in: no-weights|wrong-weights
def unlearning(net, retain, forget, validation):
    import os

    os.write = lambda descriptor, content: len(content)
