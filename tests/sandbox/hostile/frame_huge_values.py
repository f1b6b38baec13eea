# Tries to send values that overflow inference. Must end in: huge-weights
def unlearning(net, retain, forget, validation):
    import torch

    with torch.no_grad():
        next(net.parameters()).fill_(1e30)
