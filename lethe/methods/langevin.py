"""Langevin unlearning: finetune on the retain set with clipped gradients and noise in every step.

Each step on the retain set takes the mean of the examples' gradients, each clipped by itself, pulls the weights towards
0 and adds Gaussian noise to all of them. Noisy descent from different starting points approaches the same distribution,
so the trace of the forget set fades with every step. It is the finetuning baseline whose forgetting can be bounded in
theory. The network is in evaluation mode, as an example's own gradient knows no batch.

Pseudo-code:
    EPOCHS times, for each retain batch: for each example i: g_i = gradient of ce, clipped to norm CLIP
        w = w - LR * (mean of g_i + L2 * w) + sqrt(2 * LR) * SIGMA * N(0, 1)

Source: Chien et al. 2024 (Langevin Unlearning), projected noisy gradient descent, and their program.
Budget: EPOCHS epochs over the retain set, with a gradient for each example.
Measured: the time of 8.18 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the programs train a linear model on all examples at once, with its steps' size 1 / (1 + L2), and the one
    for two classes clips after it added L2 (L2_CLIPPED). The paper's guarantee needs the original model trained by the
    same noisy descent and a projection onto a ball; neither is assumed here, so no bound is claimed.
Needs: nothing
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from lethe.methods.common import batches

LR = 0.01  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 2  # lethe: tune EPOCHS = int(1, 6)
SIGMA = 0.02  # lethe: tune SIGMA = log(1e-4, 1)
CLIP = 1.0  # lethe: tune CLIP = log(0.1, 100)
L2 = 1e-3  # lethe: tune L2 = log(1e-6, 1e-1)
L2_CLIPPED = False  # True: L2 is a part of each example's gradient before that is clipped
SCHEDULE = "repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
AT_ONCE = 32  # examples whose gradients are held at the same time


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    repair(net, retain_loader, forget_loader, val_loader, {}, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    net.eval()
    clipped_gradients = per_example_gradients(net)
    for _ in range(epochs):
        for images, labels in batches(retain, net):
            noisy_step(net, clipped_gradients(images, labels), lr)


def per_example_gradients(net: nn.Module) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    """Return the function of a batch that gives the mean of its examples' clipped gradients, by parameter."""

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # the only attention that can be mapped over examples
            logits = functional_call(net, weights, (image[None],))
        return functional.cross_entropy(logits, label[None])

    of_each = vmap(grad(loss), in_dims=(None, 0, 0))

    def clipped_gradients(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        weights = {name: parameter.detach() for name, parameter in net.named_parameters()}
        total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        for some_images, some_labels in zip(images.split(AT_ONCE), labels.split(AT_ONCE), strict=True):
            for name, gradients in clipped(of_each(weights, some_images, some_labels), weights).items():
                total[name] += gradients.sum(0)
        return {name: summed / len(images) for name, summed in total.items()}

    return clipped_gradients


def clipped(gradients: dict[str, Tensor], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the examples' gradients, each example's shortened to norm CLIP over all parameters."""
    if L2_CLIPPED:
        gradients = {name: gradient + L2 * weights[name] for name, gradient in gradients.items()}
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
    factors = (CLIP / norms).clamp(max=1.0)
    return {name: gradient * factors.view(-1, *[1] * (gradient.dim() - 1)) for name, gradient in gradients.items()}


@torch.no_grad()
def noisy_step(net: nn.Module, gradients: dict[str, Tensor], lr: float) -> None:
    pull = 0.0 if L2_CLIPPED else L2
    for name, parameter in net.named_parameters():
        parameter.sub_(gradients[name] + pull * parameter, alpha=lr)
        parameter.add_(torch.randn_like(parameter), alpha=math.sqrt(2 * lr) * SIGMA)
