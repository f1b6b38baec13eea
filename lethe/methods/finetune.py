"""Finetune: train further on the retain set.

The network is trained for a few more epochs on the retain set alone. Nothing pushes the forget set out: what is
forgotten is forgotten because it is no longer rehearsed. With a small learning rate, an over-confident network hardly
moves.

Pseudo-code:
    EPOCHS times: one pass of SGD over the retain set on cross-entropy, the learning rate as ANNEALING says

Source: Triantafillou et al. 2024; Cadet et al. 2024, FT; MIAU paper: 5 epochs with learning rate 0.02.
Budget: EPOCHS epochs over the retain set.
Measured: the time of 0.85 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the papers do not say how the learning rate falls: by a cosine in Cadet et al., not at all in Fan et al.
Needs: nothing
"""

from typing import Any

import torch
from torch import nn

from lethe.methods.common import annealed, train

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 6)
ANNEALING = "cosine"  # lethe: tune ANNEALING = choice("cosine", "constant")
SCHEDULE = "repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {
    "deep-unlearn": {"LR": 1e-3, "EPOCHS": 1, "ANNEALING": "cosine"},
    "salun": {"LR": 0.01, "EPOCHS": 10, "ANNEALING": "constant"},
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    repair(net, retain_loader, forget_loader, val_loader, {}, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    train(net, retain, optimizer, annealed(lr, epochs, ANNEALING))
