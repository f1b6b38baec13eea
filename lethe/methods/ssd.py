"""SSD, selective synaptic dampening: shrink the weights that matter more to the forget set than to all data.

The importance of a weight is its mean squared gradient over batches, for all training data and for the forget set.
Weights whose forget importance exceeds ALPHA times the full one are scaled down, the more the larger the ratio. No
training step is taken.

Pseudo-code:
    I(D) = mean over batches of grad(ce(batch))^2, in evaluation mode; full = I(retain + forget), f = I(forget)
    where f > ALPHA * full: w = w * min(LAMBDA * full / f, 1)

Source: Foster et al. 2024, equations 3-4: ALPHA 10, LAMBDA 1 for a ResNet-18; ALPHA 5 to 25 for a ViT.
Budget: 1 epoch over the retain set.
Measured: the time of 1.46 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: yes
Differences: none in what is computed; nothing is shuffled, and both sets are cut into batches together, as in the
    program. With SHARE below 1 a random part of the retain set is used, and two runs differ. The published tuning for
    random forgetting raises UnboundLocalError.
Needs: forget images, forget labels
"""

from typing import Any

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Subset

from lethe.methods.common import batches, dampen, importance, ordered

ALPHA = 10.0  # lethe: tune ALPHA = log(1, 100)
LAMBDA = 1.0  # lethe: tune LAMBDA = log(0.1, 5)
SHARE = 1.0  # of the retain set whose importance is measured


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    forget_importance = importance(net, batches(ordered(forget_loader), net))
    full_importance = importance(net, batches(everything(retain_loader, forget_loader), net))
    for parameter, full, forget in zip(net.parameters(), full_importance, forget_importance, strict=True):
        dampen(parameter, full, forget, alpha=ALPHA, factor=LAMBDA)
    net.eval()


def everything(retain_loader: Any, forget_loader: Any) -> Any:
    """Return a loader of the retain set (a random SHARE of it), then the forget set, in the retain loader's batches."""
    retain = retain_loader.dataset
    if SHARE < 1:
        retain = Subset(retain, torch.randperm(len(retain))[: max(1, round(SHARE * len(retain)))].tolist())
    return DataLoader(ConcatDataset([retain, forget_loader.dataset]), batch_size=retain_loader.batch_size)
