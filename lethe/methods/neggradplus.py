"""NegGrad+: descend on retain batches while ascending on forget batches.

Each step adds the loss of a retain batch and subtracts that of a forget batch. ALPHA weighs the two, so that the
retain set holds the network together while the forget set is pushed out. BatchNorm and dropout stay as in evaluation
unless TRAIN is set.

Pseudo-code:
    EPOCHS times, for each retain batch (x, y) with the next forget batch (xf, yf):
        step SGD on ALPHA * ce(net(x), y) - (1 - ALPHA) * ce(net(xf), yf)

Source: Kurmanji et al. 2023 (SCRUB), NegGrad+; Triantafillou et al. 2024: best 0.001, 1 epoch, ALPHA 0.99999.
Budget: 2 * EPOCHS epochs over the retain set (two forward and backward passes a step).
Measured: the time of 1.80 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the text does not say which mode the network is in; the program of Cadet et al. runs it in evaluation
    mode. TRAIN = True gives the other reading.
Needs: forget images, forget labels
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)
ALPHA = 0.95  # lethe: tune ALPHA = uniform(0.5, 1)
TRAIN = False  # lethe: tune TRAIN = choice(False, True)
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = sgd(net.parameters(), LR)
    net.train(TRAIN)
    forget_batches = cycle(forget_loader, net)
    for _ in range(EPOCHS):
        for images, labels in batches(retain_loader, net):
            forget_images, forget_labels = next(forget_batches)
            kept = functional.cross_entropy(net(images), labels)
            forgotten = functional.cross_entropy(net(forget_images), forget_labels)
            step(optimizer, ALPHA * kept - (1 - ALPHA) * forgotten)
    net.eval()


def cycle(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches without end, one pass after another."""
    while True:
        n_batches = 0
        for batch in batches(loader, net):
            n_batches += 1
            yield batch
        if not n_batches:
            raise ValueError("the set is too small: it has no batch that the network can be trained on")


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
