"""The host's baseline: one epoch of fine-tuning on the retain set, and the rest is left to forgetting by itself."""

import torch
from torch import nn


def unlearning(net, retain_loader, forget_loader, val_loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()
    net.train()
    for sample in retain_loader:
        optimizer.zero_grad()
        criterion(net(sample["image"]), sample["label"]).backward()
        optimizer.step()
    net.eval()
