"""A network of random weights: the lowest utility that there is, and what forget quality says of gibberish."""

import torch
from torch import nn


def unlearning(net, retain_loader, forget_loader, val_loader):
    """Draw every weight again, as for a new network. Its scales of norms stay as they are."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
