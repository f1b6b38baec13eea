"""Adaptive SSD: selective synaptic dampening whose threshold follows from the size of the forget set.

Importances are those of SSD. The threshold ALPHA is not chosen but is the percentile of all ratios of forget to full
importance that leaves ln(1 + 100 |S| / |D|) per cent of the weights above it. The larger the forget set, the more
weights are dampened.

Pseudo-code:
    full, f = importances as in SSD; p = 100 - ln(1 + 100 |S| / |D|); a = the p-th percentile of f / full
    where f > a * full: w = w * min(LAMBDA * full / f, 1)

Source: Schoepf, Foster and Brintrup 2024 (arXiv 2402.10098), ASSD.
Budget: 1 epoch over the retain set.
Measured: the time of 1.49 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: yes
Differences: batches are read in stored order here, shuffled in the program.
Needs: forget images, forget labels
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

LAMBDA = 1.0  # lethe: tune LAMBDA = log(0.1, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    forget_importance = importance(net, ordered(forget_loader, net))
    full_importance = importance(net, both(net, retain_loader, forget_loader))
    n_forget = len(forget_loader.dataset)
    alpha = threshold(forget_importance, full_importance, n_forget / (n_forget + len(retain_loader.dataset)))
    for parameter, full, forget in zip(net.parameters(), full_importance, forget_importance, strict=True):
        dampen(parameter, full, forget, alpha=alpha, factor=LAMBDA)
    net.eval()


def both(net: nn.Module, retain_loader: Any, forget_loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    yield from ordered(retain_loader, net)
    yield from ordered(forget_loader, net)


def threshold(forget: list[Tensor], full: list[Tensor], share: float) -> float:
    """Return the ratio of forget to full importance that ln(1 + 100 share) per cent of the weights exceed."""
    ratios = torch.cat([(part / whole).flatten() for part, whole in zip(forget, full, strict=True)])
    ratios = ratios[ratios.isfinite()].sort().values
    if not len(ratios):
        return math.inf
    kept = 1 - math.log1p(100 * share) / 100
    return float(ratios[min(len(ratios) - 1, math.floor(kept * (len(ratios) - 1)))])


def importance(net: nn.Module, data: Iterable[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Return the mean over batches of the squared gradient of the batch's mean loss, one tensor a parameter."""
    net.eval()
    parameters = list(net.parameters())
    total, n_batches = [torch.zeros_like(parameter) for parameter in parameters], 0
    for images, labels in data:
        gradients = torch.autograd.grad(functional.cross_entropy(net(images), labels), parameters, allow_unused=True)
        for summed, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                summed.add_(gradient.square())
        n_batches += 1
    return [summed / max(n_batches, 1) for summed in total]


@torch.no_grad()
def dampen(parameter: Tensor, full: Tensor, forget: Tensor, *, alpha: float, factor: float) -> None:
    """Scale the weights whose forget importance exceeds alpha times the full one by factor * full / forget, at most 1.

    parameter, full, forget: same shape.
    """
    selected = forget > alpha * full
    scale = (factor * full / forget).clamp(max=1)
    parameter.copy_(torch.where(selected, parameter * scale, parameter))


def ordered(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the loader's batches unshuffled, so that two runs see the same ones."""
    yield from batches(DataLoader(loader.dataset, batch_size=loader.batch_size), net)


def batches(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, labels) of one pass on the network's device; BatchNorm cannot train on a batch of one."""
    device = next(net.parameters()).device
    skips_single = net.training and any(isinstance(module, _BatchNorm) for module in net.modules())
    for sample in loader:
        if not (skips_single and len(sample["image"]) == 1):
            yield sample["image"].to(device), sample["label"].to(device)
