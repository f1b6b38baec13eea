# Tries to return a tensor of 2^40 elements that needs no memory. Must end in: wrong-weights
def unlearning(net, retain, forget, validation):
    import torch

    name, parameter = next(iter(net.named_parameters()))
    huge = torch.zeros(1).expand(1 << 40)
    state = dict(net.state_dict())
    state[name] = huge
    net.state_dict = lambda: state
