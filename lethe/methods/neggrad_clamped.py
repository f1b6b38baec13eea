"""NegGrad, clamped: one loader of both sets, the sign of the forget losses flipped, all losses clamped.

Retain and forget examples are shuffled together and each example's loss is negated where it is to be forgotten. Every
loss is then clamped to [0, 1/C], which removes the gradient of all forget examples (their loss is negative) and of
retain examples whose loss exceeds 1/C. What is left is finetuning on the retain examples that are nearly right.

Pseudo-code:
    EPOCHS times, for each batch of retain and forget examples together:
        l = per-example ce(net(x), y), negated on forget examples; step SGD on mean(clamp(l, 0, 1/C))

Source: the program of Cadet et al. 2024 (negative gradient), which their paper does not use.
Budget: EPOCHS epochs over the retain and the forget set.
Measured: the time of 1.52 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the name promises ascent on the forget set; the clamp makes it none. It is kept as it is published, to be
    compared with.
Needs: forget images, forget labels
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 6)
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = sgd(net.parameters(), LR)
    net.train()
    for _ in range(EPOCHS):
        for images, labels, is_forget, _ in mixed(net, retain_loader, forget_loader):
            step(optimizer, clamped_loss(net(images), labels, is_forget))
    net.eval()


def clamped_loss(logits: Tensor, labels: Tensor, is_forget: Tensor) -> Tensor:
    """Return the mean of the signed losses, each clamped to [0, 1/C]. logits: [n, C]; labels, is_forget: [n]."""
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return torch.where(is_forget, -losses, losses).clamp(0, 1 / logits.shape[1]).mean()


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


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
