"""Shrink: make all weights smaller, then train on the retain set.

Smaller weights give less certain answers; training on the retain set repairs what is needed there.

Pseudo-code:
    multiply every weight by FACTOR
    EPOCHS times: one pass of SGD over the retain set on cross-entropy

Source: an example.
Budget: EPOCHS epochs over the retain set.
Deterministic: no
Differences: none
Needs: nothing
"""

from typing import Any

import torch
from torch import nn

FACTOR = 0.9  # lethe: tune FACTOR = uniform(0.5, 1.0)
LR = 1e-2  # lethe: tune LR = log(1e-4, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    device = next(net.parameters()).device
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(FACTOR)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    net.train()
    for _ in range(EPOCHS):
        for batch in retain_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(batch["image"].to(device)), batch["label"].to(device))
            loss.backward()
            optimizer.step()
    net.eval()
