"""Add noise to every weight matrix, then train on what is retained. Make it better.

`net` holds the original weights; change it in place, or return another network of the same form. The loaders give
dicts with image, image_id, label (also called age_group), age and person_id. Write `# lethe: samples = tuple` at the
top of this file for batches of (inputs, targets) instead.
"""

import torch
from torch import nn

NOISE = 0.6  # in standard deviations of each weight matrix
EPOCHS = 1
LR = 0.05


def unlearning(net, retain_loader, forget_loader, val_loader):
    """Unlearn the forget set. Called once for every run, each time on the original model with another seed."""
    device = next(net.parameters()).device
    add_noise(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    net.train()
    for _ in range(EPOCHS):
        for batch in retain_loader:
            inputs, targets = batch["image"].to(device), batch["label"].to(device)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
    net.eval()


@torch.no_grad()
def add_noise(net):
    for weight in net.parameters():
        if weight.dim() > 1:
            weight.add_(NOISE * weight.std() * torch.randn_like(weight))
