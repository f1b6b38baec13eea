"""Langevin unlearning: finetune on the retain set with noise in every step.

Each gradient step on the retain set is followed by Gaussian noise on all weights. Noisy descent from different starting
points approaches the same distribution, so the trace of the forget set fades with every step. It is the finetuning
baseline whose forgetting can be bounded in theory.

Pseudo-code:
    EPOCHS times, for each retain batch: g = gradient of ce, clipped to norm CLIP
        w = w - LR * g + sqrt(2 * LR) * SIGMA * N(0, 1)

Source: Chien et al. 2024 (Langevin Unlearning), projected noisy gradient descent.
Budget: EPOCHS epochs over the retain set.
Measured: the time of 2.27 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper's guarantee needs the original model trained by the same noisy descent and a projection onto a
    ball; neither is assumed here, so no bound is claimed.
Needs: nothing
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lethe.methods.common import batches

LR = 0.01  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 2  # lethe: tune EPOCHS = int(1, 6)
SIGMA = 0.02  # lethe: tune SIGMA = log(1e-4, 1)
CLIP = 10.0  # lethe: tune CLIP = log(0.1, 100)
SCHEDULE = "repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR


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
    net.train()
    for _ in range(epochs):
        for images, labels in batches(retain_loader, net):
            net.zero_grad()
            functional.cross_entropy(net(images), labels).backward()
            nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            noisy_step(net, lr)


@torch.no_grad()
def noisy_step(net: nn.Module, lr: float) -> None:
    for parameter in net.parameters():
        if parameter.grad is not None:
            parameter.add_(parameter.grad, alpha=-lr)
        parameter.add_(torch.randn_like(parameter), alpha=math.sqrt(2 * lr) * SIGMA)
