"""Boundary shrink: give each forget image the label of the class that lies nearest across the boundary.

A step of the fast gradient sign method on the original network shows which wrong class is nearest to each forget
image. The network is then trained on the forget set with these labels. The decision region of the forgotten class
shrinks into its neighbours; made for the removal of a class.

Pseudo-code:
    x' = x + BOUND * std(x) * sign(grad_x ce(f0(x), y)); n(x) = argmax over classes other than y of f0(x')
    EPOCHS times: for each forget batch: step on ce(net(x), n(x))

Source: Chen et al. 2023 (Boundary Unlearning), section 4.1.
Budget: 2 * EPOCHS * |S| / |R| epochs over the retain set.
Measured: the time of 3.69 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the program takes the argmax over all classes, which leaves the true label where the step does not cross
    the boundary: ANY_CLASS. The bound is in pixel values there, which are cut to 0..1 and rounded to bytes; here in
    standard deviations, as the inputs' scale is free: UNITS.
Needs: forget images, forget labels, second network
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import batches, frozen_copy, step

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 10  # lethe: tune EPOCHS = int(1, 20)
BOUND = 0.1  # lethe: tune BOUND = log(0.01, 1)
UNITS = "deviations"  # lethe: tune UNITS = choice("deviations", "values", "pixels")
ANY_CLASS = False  # lethe: tune ANY_CLASS = choice(False, True)
PRESETS = {"salun": {"LR": 0.01, "EPOCHS": 10, "UNITS": "pixels", "ANY_CLASS": True}}
SCHEDULE = "erase"
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    erase(net, retain_loader, forget_loader, val_loader, {})
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    original = frozen_copy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    net.train()
    for _ in range(EPOCHS):
        for images, labels in batches(forget_loader, net):
            step(optimizer, functional.cross_entropy(net(images), nearest_wrong(original, images, labels)))


def nearest_wrong(original: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return for each image the wrong class that a step across the boundary meets first: [n]."""
    moved = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(functional.cross_entropy(original(moved), labels), moved)
    bound = BOUND * images.std() if UNITS == "deviations" else BOUND
    moved = images + bound * gradient.sign()
    if UNITS == "pixels":
        moved = (moved.clamp(0, 1) * 255).round() / 255
    logits: Tensor = original(moved)
    if ANY_CLASS:
        return logits.argmax(1)
    return logits.scatter(1, labels[:, None], -math.inf).argmax(1)
