# Tries to leave changed environment, modules and random state for the next run. Must end in: weights
def unlearning(net, retain, forget, validation):
    import builtins
    import os
    import random
    import sys

    import numpy
    import torch

    if hasattr(builtins, "lethe_note") or "LETHE_NOTE" in os.environ or torch.get_num_threads() != 1:
        raise AssertionError("breach")
    builtins.lethe_note = os.environ["LETHE_NOTE"] = "here"
    torch.set_num_threads(2)
    random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
    sys.modules["torch.optim"] = None
