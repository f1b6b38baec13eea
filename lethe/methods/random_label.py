"""Random label: train the forget set on random labels, then repair on the retain set, by turns.

Every forget batch is given fresh labels, each class equally likely, the true one too. Passes over the retain set
follow, and both are done ROUNDS times by one optimizer. The forget set ends less certain, yet its outputs can be driven
below those of a network that never saw it.

Pseudo-code:
    ROUNDS times, with one SGD:
        ERASE_EPOCHS times: for each forget batch: step on ce(net(x), uniform labels)
        EPOCHS times: one pass over the retain set

Source: Fan et al. 2024 (SalUn), RL in sequence; Triantafillou et al. 2024: best 2 epochs, 5e-4, 1 epoch.
Budget: ROUNDS * (EPOCHS + ERASE_EPOCHS * |S| / |R|) epochs over the retain set.
Measured: the time of 1.44 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: Triantafillou et al. describe one round of several passes, the defaults; the program of Fan et al. takes
    ten rounds of one pass each.
Needs: forget images
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import train, uniform_labels

ERASE_LR = 5e-4  # lethe: tune ERASE_LR = log(1e-5, 1e-1)
ERASE_EPOCHS = 2  # lethe: tune ERASE_EPOCHS = int(1, 5)
LR = 5e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)
ROUNDS = 1  # lethe: tune ROUNDS = int(1, 10)
SCHEDULE = "(erase repair)*ROUNDS"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {"salun": {"ROUNDS": 10, "ERASE_EPOCHS": 1, "EPOCHS": 1, "ERASE_LR": 0.013, "LR": 0.013}}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    for _ in range(ROUNDS):
        erase(net, retain_loader, forget_loader, val_loader, state)
        repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    train(net, forget_loader, kept_optimizer(net, state), [ERASE_LR] * ERASE_EPOCHS, random_label_loss)


def random_label_loss(logits: Tensor, labels: Tensor, images: Tensor) -> Tensor:
    return functional.cross_entropy(logits, uniform_labels(logits))


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    train(net, retain, kept_optimizer(net, state), [lr] * epochs)


def kept_optimizer(net: nn.Module, state: dict[str, Any]) -> torch.optim.Optimizer:
    """Return the one optimizer of all rounds."""
    if "optimizer" not in state:
        state["optimizer"] = torch.optim.SGD(net.parameters(), LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    optimizer: torch.optim.Optimizer = state["optimizer"]
    return optimizer
