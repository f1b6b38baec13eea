"""A network retrained on the retain set and a part of the forget set: between the original and exact retraining.

The constants are those of the training that the benchmark file names. Source: the MIAU paper, which asks
that a metric tells how much of the forget set is gone.
"""

import torch
from torch.nn import functional
from torch.utils.data import ConcatDataset, DataLoader, Subset

SHARE = 0.75  # of the forget set that the network never sees
LR = 0.05
MOMENTUM = 0.9
EPOCHS = 25


def unlearning(net, retain_loader, forget_loader, val_loader):
    """Draw the weights again and train on what is left, in batches of the loader's size."""
    forget = forget_loader.dataset
    kept = torch.randperm(len(forget))[round(SHARE * len(forget)) :].tolist()
    left = ConcatDataset([retain_loader.dataset, Subset(forget, kept)])
    loader = DataLoader(left, batch_size=retain_loader.batch_size, shuffle=True)
    for module in net.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    for _ in range(EPOCHS):
        for sample in loader:
            loss = functional.cross_entropy(net(sample["image"]), sample["age_group"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    net.eval()
