"""Successive random labels: both sets shuffled together, the forget labels drawn again each epoch.

Retain examples keep their labels; forget examples get a random class, the true one too, each time they are seen. Both
sets share every batch, so repair happens while the forget set is being pushed out. It needs no labels of the forget
set.

Pseudo-code:
    EPOCHS times, for each batch of retain and forget examples together:
        y[forget] = uniform labels; step SGD on ce(net(x), y)

Source: Cadet et al. 2024, SRL; Graves et al. 2021.
Budget: EPOCHS epochs over the retain and the forget set.
Measured: the time of 3.09 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
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

LR = 1e-2  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 2  # lethe: tune EPOCHS = int(1, 6)
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = sgd(net.parameters(), LR)
    net.train()
    for epoch in range(EPOCHS):
        set_lr(optimizer, cosine(LR, epoch, EPOCHS))
        for images, labels, is_forget, _ in mixed(net, retain_loader, forget_loader):
            logits = net(images)
            targets = torch.where(is_forget, uniform_labels(logits), labels)
            step(optimizer, functional.cross_entropy(logits, targets))
    net.eval()


def mixed(
    net: nn.Module, retain_loader: Any, forget_loader: Any, *, share: float = 1.0, batch_size: int | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield (images, labels, is_forget, index) of `share` of the retain set and the forget set, shuffled together."""
    device = next(net.parameters()).device
    size = batch_size or retain_loader.batch_size
    chosen = torch.randperm(len(retain_loader.dataset))[: round(share * len(retain_loader.dataset))].tolist()
    examples = [(retain_loader.dataset, index, False) for index in chosen]
    examples += [(forget_loader.dataset, index, True) for index in range(len(forget_loader.dataset))]
    for part in torch.randperm(len(examples)).split(size):
        if len(part) == 1 and net.training and any(isinstance(module, _BatchNorm) for module in net.modules()):
            continue  # BatchNorm cannot train on a batch of one
        picked = [examples[position] for position in part.tolist()]
        samples = [dataset[index] for dataset, index, _ in picked]
        yield (
            torch.stack([sample["image"] for sample in samples]).to(device),
            torch.tensor([int(sample["label"]) for sample in samples], device=device),
            torch.tensor([is_forget for *_, is_forget in picked], device=device),
            torch.tensor([index for _, index, _ in picked], device=device),
        )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def cosine(lr: float, done: int, total: int) -> float:
    """Return the learning rate after `done` of `total` steps of cosine annealing from `lr` to 0."""
    return lr * (1 + math.cos(math.pi * done / total)) / 2


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def uniform_labels(logits: Tensor) -> Tensor:
    """Return one label for each row, each class equally likely, the true one too."""
    return torch.randint(logits.shape[1], (len(logits),), device=logits.device)
