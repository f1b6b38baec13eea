"""Boundary shrink: give each forget image the label of the class that lies nearest across the boundary.

A step of the fast gradient sign method on the original network shows which wrong class is nearest to each forget
image. The network is then trained on the forget set with these labels. The decision region of the forgotten class
shrinks into its neighbours; made for the removal of a class.

Pseudo-code:
    x' = x + BOUND * std(x) * sign(grad_x ce(f0(x), y)); n(x) = argmax over classes other than y of f0(x')
    EPOCHS times: for each forget batch: step on ce(net(x), n(x))

Source: Chen et al. 2023 (Boundary Unlearning), section 4.1.
Budget: 2 * EPOCHS * |S| / |R| epochs over the retain set.
Measured: the time of 3.95 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the program takes the argmax over all classes, which leaves the true label where the step does not cross
    the boundary. The bound is in pixel values there; here in standard deviations, as the inputs' scale is free.
Needs: forget images, forget labels, second network
"""

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 10  # lethe: tune EPOCHS = int(1, 20)
BOUND = 0.1  # lethe: tune BOUND = log(0.01, 1)
SCHEDULE = "erase"
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    erase(net, retain_loader, forget_loader, val_loader, {})
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    original = frozen_copy(net)
    optimizer = sgd(net.parameters(), LR)
    net.train()
    for _ in range(EPOCHS):
        for images, labels in batches(forget_loader, net):
            step(optimizer, functional.cross_entropy(net(images), nearest_wrong(original, images, labels)))


def nearest_wrong(original: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return for each image the wrong class that a step across the boundary meets first: [n]."""
    moved = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(functional.cross_entropy(original(moved), labels), moved)
    logits: Tensor = original(images + BOUND * images.std() * gradient.sign())
    return logits.scatter(1, labels[:, None], -math.inf).argmax(1)


def batches(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, labels) of one pass on the network's device; BatchNorm cannot train on a batch of one."""
    device = next(net.parameters()).device
    skips_single = net.training and any(isinstance(module, _BatchNorm) for module in net.modules())
    for sample in loader:
        if not (skips_single and len(sample["image"]) == 1):
            yield sample["image"].to(device), sample["label"].to(device)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def frozen_copy(net: nn.Module) -> nn.Module:
    """Return the network as it is, for its outputs only."""
    return copy.deepcopy(net).eval().requires_grad_(False)
