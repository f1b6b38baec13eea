"""Shake what was memorised out of every weight, then repair the network on the retain set."""

import torch
from torch import nn

NOISE = 0.3  # in standard deviations of each weight matrix
EPOCHS = 1


def unlearning(net, retain_loader, forget_loader, val_loader):
    add_noise(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()
    net.train()
    for _ in range(EPOCHS):
        for sample in retain_loader:
            optimizer.zero_grad()
            criterion(net(sample["image"]), sample["label"]).backward()
            optimizer.step()
    net.eval()


@torch.no_grad()
def add_noise(net):
    for parameter in net.parameters():
        if parameter.dim() > 1:
            parameter.add_(NOISE * parameter.std() * torch.randn_like(parameter))
