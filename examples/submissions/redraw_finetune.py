"""Draw the smallest weights of every layer again, then train on the retain set, as two winners of 2023 did."""

import torch
from torch import nn

SHARE = 0.65  # of each weight matrix, its smallest entries  # lethe: tune SHARE = uniform(0.3, 0.98)
LR = 0.15  # lethe: tune LR = log(1e-3, 0.5)
WEIGHT_DECAY = 1.3e-3  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
EPOCHS = 4


def unlearning(net, retain_loader, forget_loader, val_loader):
    redraw(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(retain_loader))
    criterion = nn.CrossEntropyLoss()
    net.train()
    for _ in range(EPOCHS):
        for sample in retain_loader:
            optimizer.zero_grad()
            criterion(net(sample["image"]), sample["label"]).backward()
            optimizer.step()
            schedule.step()
    net.eval()


@torch.no_grad()
def redraw(net):
    for parameter in net.parameters():
        if parameter.dim() > 1:
            is_small = parameter.abs() <= parameter.abs().flatten().quantile(SHARE)
            fresh = nn.init.kaiming_uniform_(torch.empty_like(parameter), a=5**0.5)
            parameter.copy_(torch.where(is_small, fresh, parameter))
