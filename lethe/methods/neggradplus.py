"""NegGrad+: descend on retain batches while ascending on forget batches.

Each step adds the loss of a retain batch and subtracts that of a forget batch. ALPHA weighs the two, so that the
retain set holds the network together while the forget set is pushed out. PULL holds the weights near the original ones.
BatchNorm and dropout stay as in evaluation unless TRAIN is set.

Pseudo-code:
    EPOCHS times, for each retain batch (x, y) with the next forget batch (xf, yf):
        step SGD on ALPHA * (ce(net(x), y) + PULL / 2 * |w - w0|^2) - (1 - ALPHA) * ce(net(xf), yf)

Source: Kurmanji et al. 2023 (SCRUB), NegGrad+; Triantafillou et al. 2024: best 0.001, 1 epoch, ALPHA 0.99999.
Budget: 2 * EPOCHS epochs over the retain set (two forward and backward passes a step).
Measured: the time of 1.86 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the text names neither the mode of the network, nor the pull, nor the optimizer: plain SGD in the programs,
    in evaluation mode with a pull in the small-scale experiments, in training mode without one in the others.
Needs: forget images, forget labels
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import batches, cycle, step

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)
ALPHA = 0.95  # lethe: tune ALPHA = uniform(0.5, 1)
TRAIN = False  # lethe: tune TRAIN = choice(False, True)
PULL = 0.1  # lethe: tune PULL = uniform(0, 1)
MOMENTUM = 0.0  # lethe: tune MOMENTUM = choice(0.0, 0.9)
WEIGHT_DECAY = 0.0
PRESETS = {
    "small-scale": {"LR": 0.01, "EPOCHS": 10, "ALPHA": 0.95, "TRAIN": False, "PULL": 0.1},
    "membership": {"LR": 0.01, "EPOCHS": 5, "ALPHA": 0.9999, "TRAIN": True, "PULL": 0.0},
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    original = [parameter.detach().clone() for parameter in net.parameters()]
    net.train(TRAIN)
    for _ in range(EPOCHS):
        forget_batches = cycle(forget_loader, net)
        for images, labels in batches(retain_loader, net):
            forget_images, forget_labels = next(forget_batches)
            kept = functional.cross_entropy(net(images), labels)
            forgotten = functional.cross_entropy(net(forget_images), forget_labels)
            if PULL:
                kept = kept + PULL / 2 * distance(net, original)
            step(optimizer, ALPHA * kept - (1 - ALPHA) * forgotten)
    net.eval()


def distance(net: nn.Module, original: list[Tensor]) -> Tensor:
    """Return the squared Euclidean distance of the weights from the original ones."""
    moved = [(now - before).square().sum() for now, before in zip(net.parameters(), original, strict=True)]
    return torch.stack(moved).sum()
