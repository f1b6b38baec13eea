"""SSD, selective synaptic dampening: shrink the weights that matter more to the forget set than to all data.

The importance of a weight is its mean squared gradient over batches, for all training data and for the forget set.
Weights whose forget importance exceeds ALPHA times the full one are scaled down, the more the larger the ratio. No
training step is taken.

Pseudo-code:
    I(D) = mean over batches of grad(ce(batch))^2, in evaluation mode; full = I(retain + forget), f = I(forget)
    where f > ALPHA * full: w = w * min(LAMBDA * full / f, 1)

Source: Foster et al. 2024, equations 3-4: ALPHA 10, LAMBDA 1 for a ResNet-18; ALPHA 5 to 25 for a ViT.
Budget: 1 epoch over the retain set.
Measured: the time of 1.51 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: yes
Differences: batches are read in stored order here, shuffled in the program, so that the result is one point; with
    SHARE below 1 a random part of the retain set is used, and two runs differ. The published tuning for random
    forgetting raises UnboundLocalError.
Needs: forget images, forget labels
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, Subset

ALPHA = 10.0  # lethe: tune ALPHA = log(1, 100)
LAMBDA = 1.0  # lethe: tune LAMBDA = log(0.1, 5)
SHARE = 1.0  # of the retain set whose importance is measured


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    forget_importance = importance(net, ordered(forget_loader, net))
    full_importance = importance(net, all_batches(net, retain_loader, forget_loader))
    for parameter, full, forget in zip(net.parameters(), full_importance, forget_importance, strict=True):
        dampen(parameter, full, forget, alpha=ALPHA, factor=LAMBDA)
    net.eval()


def all_batches(net: nn.Module, retain_loader: Any, forget_loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the retain set's batches (of a random SHARE of it), then the forget set's."""
    if SHARE < 1:
        chosen = torch.randperm(len(retain_loader.dataset))[: max(1, round(SHARE * len(retain_loader.dataset)))]
        part = Subset(retain_loader.dataset, chosen.tolist())
        yield from batches(DataLoader(part, batch_size=retain_loader.batch_size), net)
    else:
        yield from ordered(retain_loader, net)
    yield from ordered(forget_loader, net)


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
