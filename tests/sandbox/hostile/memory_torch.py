# Tries to use up memory through torch. Must end in: out-of-memory
def unlearning(net, retain, forget, validation):
    import torch

    kept = []
    while True:
        kept.append(torch.ones(4 << 20))
