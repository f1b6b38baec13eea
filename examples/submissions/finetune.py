"""The host's baseline: fine-tuning on the retain set, and the rest is left to forgetting by itself."""

import torch
from torch import nn

LR = 0.15  # lethe: tune LR = log(1e-3, 0.5)
WEIGHT_DECAY = 1e-3  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
EPOCHS = 3


def unlearning(net, retain_loader, forget_loader, val_loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=WEIGHT_DECAY)
    criterion = nn.CrossEntropyLoss()
    net.train()
    for _ in range(EPOCHS):
        for sample in retain_loader:
            optimizer.zero_grad()
            criterion(net(sample["image"]), sample["label"]).backward()
            optimizer.step()
    net.eval()
