"""CT, convolution transpose: transpose every square kernel, then finetune on the retain set.

Every convolution kernel is mirrored at its diagonal: w[:, :, i, j] becomes w[:, :, j, i]. The filters keep their norms
and channels but no longer fit the pictures, so everything learned is disturbed alike. Three epochs on the retain set
bring the accuracy back.

Pseudo-code:
    for each convolution with a square kernel larger than 1: w = w.transpose(2, 3)
    EPOCHS epochs on the retain set, cosine

Source: entries "toshi_k" and "marvelworld" of the NeurIPS 2023 competition; Cadet et al. 2024, CT.
Budget: EPOCHS epochs over the retain set.
Measured: the time of 3.17 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: Triantafillou et al. could not reproduce the entry and leave it out. Kernels of one pixel are their own
    transpose; a network without any larger square kernel is refused.
Needs: convolutions
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

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
