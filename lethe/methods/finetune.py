"""Finetune: train further on the retain set.

The network is trained for a few more epochs on the retain set alone. Nothing pushes the forget set out: what is
forgotten is forgotten because it is no longer rehearsed. With a small learning rate, an over-confident network hardly
moves.

Pseudo-code:
    EPOCHS times: one pass of SGD over the retain set on cross-entropy, the learning rate annealed by a cosine

Source: Triantafillou et al. 2024; Cadet et al. 2024, FT; MIAU paper: 5 epochs with learning rate 0.02.
Budget: EPOCHS epochs over the retain set.
Measured: the time of 1.12 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: none known.
Needs: nothing
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 6)
SCHEDULE = "repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    repair(net, retain_loader, forget_loader, val_loader, {}, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def repair(
    net: nn.Module,
    retain_loader: Any,
    forget_loader: Any,
    val_loader: Any,
    state: dict[str, Any],
    epochs: int,
    lr: float,
) -> None:
    finetune(net, retain_loader, epochs, lr)


def finetune(net: nn.Module, loader: Any, epochs: int, lr: float) -> None:
    """Train on cross-entropy, the learning rate annealed by a cosine over the epochs."""
    optimizer = sgd(net.parameters(), lr)
    net.train()
    for epoch in range(epochs):
        set_lr(optimizer, cosine(lr, epoch, epochs))
        for images, labels in batches(loader, net):
            step(optimizer, functional.cross_entropy(net(images), labels))


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def cosine(lr: float, done: int, total: int) -> float:
    """Return the learning rate after `done` of `total` steps of cosine annealing from `lr` to 0."""
    return lr * (1 + math.cos(math.pi * done / total)) / 2


def batches(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, labels) of one pass on the network's device; BatchNorm cannot train on a batch of one."""
    device = next(net.parameters()).device
    skips_single = net.training and any(isinstance(module, _BatchNorm) for module in net.modules())
    for sample in loader:
        if not (skips_single and len(sample["image"]) == 1):
            yield sample["image"].to(device), sample["label"].to(device)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
