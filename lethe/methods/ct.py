"""CT, convolution transpose: transpose every square kernel, then finetune on the retain set.

Every convolution kernel is mirrored at its diagonal: w[:, :, i, j] becomes w[:, :, j, i]. The filters keep their norms
and channels but no longer fit the pictures, so everything learned is disturbed alike. Three epochs on the retain set
bring the accuracy back.

Pseudo-code:
    for each convolution with a square kernel larger than 1: w = w.transpose(2, 3)
    EPOCHS epochs on the retain set, cosine

Source: entries "toshi_k" and "marvelworld" of the NeurIPS 2023 competition; Cadet et al. 2024, CT.
Budget: EPOCHS epochs over the retain set.
Measured: the time of 2.90 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: Triantafillou et al. could not reproduce the entry and leave it out. Kernels of one pixel are their own
    transpose; a network without any larger square kernel is refused.
Needs: convolutions
"""

from typing import Any

import torch
from torch import nn

from lethe.methods.common import annealed, train

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 3  # lethe: tune EPOCHS = int(1, 6)
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    erase(net, retain_loader, forget_loader, val_loader, state)
    repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


@torch.no_grad()
def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    square = [module for module in convolutions if module.kernel_size[0] == module.kernel_size[1] > 1]
    if not square:
        raise ValueError("ct transposes square convolution kernels larger than one pixel; the network has none")
    for convolution in square:
        convolution.weight.copy_(convolution.weight.transpose(2, 3).clone())


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    train(net, retain, optimizer, annealed(lr, epochs))
