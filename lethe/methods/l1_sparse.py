"""L1-sparse finetuning: train on the retain set with a penalty on the sum of absolute weights.

The cross-entropy of the retain set is joined by ALPHA times the L1 norm of all parameters. The penalty falls linearly
to zero, so the last epochs restore the accuracy. A sparser network has less capacity to hold single examples.

Pseudo-code:
    for e in 0..EPOCHS-1: a = ALPHA * (1 - e / (EPOCHS - EPOCHS_WITHOUT)), 0 in the last EPOCHS_WITHOUT
        one pass of SGD over the retain set on ce(net(x), y) + a * sum |w|

Source: Jia et al. 2023; Fan et al. 2024, FT_l1; Triantafillou et al. 2024: best learning rate 1e-3, ALPHA 1e-4.
Budget: EPOCHS epochs over the retain set.
Measured: the time of 4.78 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the text speaks of weights; the program counts BatchNorm and biases too, as here.
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
EPOCHS = 4  # lethe: tune EPOCHS = int(1, 6)
ALPHA = 1e-4  # lethe: tune ALPHA = log(1e-5, 1e-1)
EPOCHS_WITHOUT = 0  # lethe: tune EPOCHS_WITHOUT = int(0, 3)
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
    optimizer = sgd(net.parameters(), lr)
    net.train()
    for epoch in range(epochs):
        set_lr(optimizer, cosine(lr, epoch, epochs))
        weight = penalty_weight(epoch, epochs)
        for images, labels in batches(retain_loader, net):
            step(optimizer, functional.cross_entropy(net(images), labels) + weight * l1_norm(net))


def penalty_weight(epoch: int, epochs: int) -> float:
    """Return the weight of the L1 norm in an epoch; it falls linearly and is 0 in the last EPOCHS_WITHOUT."""
    penalised = epochs - EPOCHS_WITHOUT
    return ALPHA * (1 - epoch / penalised) if epoch < penalised else 0.0


def l1_norm(net: nn.Module) -> Tensor:
    return torch.stack([parameter.abs().sum() for parameter in net.parameters()]).sum()


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


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def cosine(lr: float, done: int, total: int) -> float:
    """Return the learning rate after `done` of `total` steps of cosine annealing from `lr` to 0."""
    return lr * (1 + math.cos(math.pi * done / total)) / 2
