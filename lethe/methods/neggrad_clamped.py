"""NegGrad, clamped: one loader of both sets, the sign of the forget losses flipped, all losses clamped.

Retain and forget examples are shuffled together and each example's loss is negated where it is to be forgotten. Every
loss is then clamped to [0, 1/C], which removes the gradient of all forget examples (their loss is negative) and of
retain examples whose loss exceeds 1/C. What is left is finetuning on the retain examples that are nearly right.

Pseudo-code:
    EPOCHS times, for each batch of retain and forget examples together:
        l = per-example ce(net(x), y), negated on forget examples; step SGD on mean(clamp(l, 0, 1/C))

Source: the program of Cadet et al. 2024 (negative gradient), which their paper does not use.
Budget: EPOCHS epochs over the retain and the forget set.
Measured: the time of 1.58 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the name promises ascent on the forget set; the clamp makes it none. It is kept as it is published, to be
    compared with.
Needs: forget images, forget labels
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import annealed, mixed, set_lr, step

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 6)
ANNEALING = "cosine"  # lethe: tune ANNEALING = choice("cosine", "constant")
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {"deep-unlearn": {"LR": 1e-3, "EPOCHS": 3}}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    net.train()
    for rate in annealed(LR, EPOCHS, ANNEALING):
        set_lr(optimizer, rate)
        for images, labels, is_forget, _ in mixed(net, retain_loader, forget_loader):
            step(optimizer, clamped_loss(net(images), labels, is_forget))
    net.eval()


def clamped_loss(logits: Tensor, labels: Tensor, is_forget: Tensor) -> Tensor:
    """Return the mean of the signed losses, each clamped to [0, 1/C]. logits: [n, C]; labels, is_forget: [n]."""
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return torch.where(is_forget, -losses, losses).clamp(0, 1 / logits.shape[1]).mean()
