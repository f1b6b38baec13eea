"""Gradient ascent: raise the loss on the forget set.

SGD climbs the cross-entropy of the forget set, and no other data are used. What the forget set shares with the rest is
lost as well, so accuracy nearly always collapses unless the learning rate is tiny. It is the cheapest method that
changes anything.

Pseudo-code:
    EPOCHS times: for each forget batch: step SGD on -cross-entropy; stop once the loss exceeds CEILING

Source: TOFU (Maini et al. 2024), section 4; Cadet et al. 2024, GA.
Budget: EPOCHS epochs over the forget set: EPOCHS * |S| / |R| epochs over the retain set.
Measured: the time of 1.45 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the papers have no ceiling. Without one the weights of a deep network overflow to infinity; beyond
    CEILING nats a batch is forgotten many times over.
Needs: forget images, forget labels
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lethe.methods.common import batches, step

LR = 0.01  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 10  # lethe: tune EPOCHS = int(1, 20)
CEILING = 100.0  # nats, mean of a batch; 0: none
PRESETS = {"salun": {"LR": 0.01, "EPOCHS": 10, "CEILING": 0.0}}
SCHEDULE = "erase"
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    erase(net, retain_loader, forget_loader, val_loader, {})
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    net.train()
    for _ in range(EPOCHS):
        for images, labels in batches(forget_loader, net):
            loss = functional.cross_entropy(net(images), labels)
            if CEILING and not loss < CEILING:
                return
            step(optimizer, -loss)
