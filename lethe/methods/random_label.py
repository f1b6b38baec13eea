"""Random label: train the forget set on random labels, then repair on the retain set.

In the first phase every forget batch is given fresh labels, each class equally likely, the true one too. In the second
the network is finetuned on the retain set. The forget set ends less certain, yet its outputs can be driven below those
of a network that never saw it.

Pseudo-code:
    ERASE_EPOCHS times: for each forget batch: step SGD on ce(net(x), uniform labels)
    EPOCHS times: one pass over the retain set, cosine

Source: Fan et al. 2024 (SalUn), RL in sequence; Triantafillou et al. 2024: best 2 epochs, 5e-4, 1 epoch.
Budget: EPOCHS + ERASE_EPOCHS * |S| / |R| epochs over the retain set.
Measured: the time of 1.57 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: none known.
Needs: forget images
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

ERASE_LR = 5e-4  # lethe: tune ERASE_LR = log(1e-5, 1e-1)
ERASE_EPOCHS = 2  # lethe: tune ERASE_EPOCHS = int(1, 5)
LR = 5e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    erase(net, retain_loader, forget_loader, val_loader, {})
    repair(net, retain_loader, forget_loader, val_loader, {}, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    optimizer = sgd(net.parameters(), ERASE_LR)
    net.train()
    for _ in range(ERASE_EPOCHS):
        for images, _ in batches(forget_loader, net):
            logits = net(images)
            step(optimizer, functional.cross_entropy(logits, uniform_labels(logits)))


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


def uniform_labels(logits: Tensor) -> Tensor:
    """Return one label for each row, each class equally likely, the true one too."""
    return torch.randint(logits.shape[1], (len(logits),), device=logits.device)


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
