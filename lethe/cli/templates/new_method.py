"""New method: make all weights smaller, then train on the retain set.

Smaller weights give less certain answers, on forgotten examples too. Training on the retain set then restores what the
network needs there.

Pseudo-code:
    multiply every weight by FACTOR
    EPOCHS times: one pass of SGD over the retain set on cross-entropy

Source: an example; name the paper and its section here.
Budget: EPOCHS epochs over the retain set.
Deterministic: no
Differences: none known.
Needs: nothing
"""

from typing import Any

import torch
from torch import nn

from lethe.methods.common import train

FACTOR = 0.9  # lethe: tune FACTOR = uniform(0.5, 1.0)
LR = 0.01  # lethe: tune LR = log(1e-4, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(FACTOR)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    train(net, retain_loader, optimizer, [LR] * EPOCHS)
    net.eval()
