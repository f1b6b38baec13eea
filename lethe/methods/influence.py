"""Influence unlearning: one Newton step that undoes the forget set's share in the loss.

The difference between the mean gradients of forget and retain set is multiplied by an approximate inverse Hessian and
added to the weights. The inverse comes from WoodFisher updates, one retain example at a time. The step is linear in
the forget set's size, so a large ALPHA leaves the range in which it means anything.

Pseudo-code:
    v = |S| / n * (mean gradient on forget - mean gradient on retain)
    k = v; o = the first example's gradient; for each further single retain example, gradient g:
        k = k - (k . g) / (N + o . g) * o;  o = o - (o . g) / (N + o . g) * o
    w = w + ALPHA * k

Source: Izzo et al. 2021, Koh and Liang 2017; program of Jia et al. 2023 (WoodFisher, N = 1000); Cadet et al. 2024, IU.
Budget: 1 epoch over both sets and SAMPLES single-example backward passes.
Measured: the time of 3.38 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: WoodFisher's own recursion applies the current inverse to each new gradient; the program keeps one vector
    o instead, which is cheap and only an approximation of it. The program takes 1000 examples; SAMPLES bounds the cost.
Needs: forget images, forget labels
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from lethe.methods.common import batches

ALPHA = 1.0  # lethe: tune ALPHA = log(0.01, 100)
SAMPLES = 100  # lethe: tune SAMPLES = int(10, 1000)
N = 1000.0  # the damping of the WoodFisher update


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    net.eval()
    n_forget, n_retain = len(forget_loader.dataset), len(retain_loader.dataset)
    forget, retain = flat(mean_gradient(net, forget_loader)), flat(mean_gradient(net, retain_loader))
    direction = n_forget / (n_forget + n_retain) * (forget - retain)
    change = inverse_hessian_product(net, retain_loader, direction)
    with torch.no_grad():
        sizes = [parameter.numel() for parameter in net.parameters()]
        for parameter, part in zip(net.parameters(), change.split(sizes), strict=True):
            parameter.add_(ALPHA * part.view_as(parameter))


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def inverse_hessian_product(net: nn.Module, loader: Any, vector: Tensor) -> Tensor:
    """Return the WoodFisher approximation of the inverse Hessian times `vector`, both of all weights: [P]."""
    product, basis = vector.clone(), None
    singles = batches(DataLoader(loader.dataset, batch_size=1, shuffle=True), net)
    for n_done, (images, labels) in enumerate(singles):
        if n_done > SAMPLES:
            break
        gradient = example_gradient(net, images, labels)
        if basis is None:
            basis = gradient.clone()
            continue
        overlap = basis @ gradient
        product -= (product @ gradient) / (N + overlap) * basis
        basis -= overlap / (N + overlap) * basis
    return product


def example_gradient(net: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    parameters = list(net.parameters())
    gradients = torch.autograd.grad(functional.cross_entropy(net(images), labels), parameters, allow_unused=True)
    return flat(
        [
            torch.zeros_like(p) if gradient is None else gradient
            for p, gradient in zip(parameters, gradients, strict=True)
        ]
    )


def mean_gradient(net: nn.Module, loader: Any) -> list[Tensor]:
    """Return the gradient of the mean cross-entropy over all examples of the loader, one tensor a parameter."""
    parameters = list(net.parameters())
    total, n_examples = [torch.zeros_like(parameter) for parameter in parameters], 0
    for images, labels in batches(loader, net):
        loss = functional.cross_entropy(net(images), labels, reduction="sum")
        for summed, gradient in zip(total, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
            if gradient is not None:
                summed.add_(gradient)
        n_examples += len(labels)
    return [summed / max(n_examples, 1) for summed in total]
