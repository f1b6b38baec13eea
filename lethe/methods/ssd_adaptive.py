"""Adaptive SSD: selective synaptic dampening whose threshold follows from the size of the forget set.

Importances are those of SSD. The threshold ALPHA is not chosen but is the percentile of all ratios of forget to full
importance that leaves ln(1 + 100 |S| / |D|) per cent of the weights above it. The larger the forget set, the more
weights are dampened.

Pseudo-code:
    full, f = importances as in SSD; p = 100 - ln(1 + 100 |S| / |D|); a = the p-th percentile of f / full
    where f > a * full: w = w * min(LAMBDA * full / f, 1)

Source: Schoepf, Foster and Brintrup 2024 (arXiv 2402.10098), ASSD.
Budget: 1 epoch over the retain set.
Measured: the time of 1.52 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: yes
Differences: none in what is computed; the paper's own repository holds no code, the program is that of a later paper.
Needs: forget images, forget labels
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from lethe.methods.common import batches, dampen, importance, ordered

LAMBDA = 1.0  # lethe: tune LAMBDA = log(0.1, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    forget_importance = importance(net, batches(ordered(forget_loader), net))
    joined: Dataset[Any] = ConcatDataset([retain_loader.dataset, forget_loader.dataset])
    everything = DataLoader(joined, batch_size=retain_loader.batch_size)
    full_importance = importance(net, batches(everything, net))
    n_forget = len(forget_loader.dataset)
    alpha = threshold(forget_importance, full_importance, n_forget / (n_forget + len(retain_loader.dataset)))
    for parameter, full, forget in zip(net.parameters(), full_importance, forget_importance, strict=True):
        dampen(parameter, full, forget, alpha=alpha, factor=LAMBDA)
    net.eval()


def threshold(forget: list[Tensor], full: list[Tensor], share: float) -> float:
    """Return the ratio of forget to full importance that ln(1 + 100 share) per cent of the weights exceed."""
    ratios = torch.cat([(part / whole).flatten() for part, whole in zip(forget, full, strict=True)])
    ratios = ratios[ratios.isfinite()].sort().values
    if not len(ratios):
        return math.inf
    kept = 1 - math.log1p(100 * share) / 100
    return float(ratios[min(len(ratios) - 1, math.floor(kept * (len(ratios) - 1)))])
