"""Draw the last layer again and train it alone on the retain set. What the other layers have learnt stays."""

import torch
from torch import nn

LR = 0.1  # lethe: tune LR = log(1e-3, 1)
WEIGHT_DECAY = 1.6e-5  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
EPOCHS = 5


def unlearning(net, retain_loader, forget_loader, val_loader):
    last = [layer for layer in net.modules() if isinstance(layer, nn.Linear)][-1]
    last.reset_parameters()
    net.requires_grad_(False)
    last.requires_grad_(True)
    optimizer = torch.optim.SGD(last.parameters(), lr=LR, momentum=0.9, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(retain_loader))
    criterion = nn.CrossEntropyLoss()
    net.train()
    for _ in range(EPOCHS):
        for sample in retain_loader:
            optimizer.zero_grad()
            criterion(net(sample["image"]), sample["label"]).backward()
            optimizer.step()
            schedule.step()
    net.requires_grad_(True)
    net.eval()
