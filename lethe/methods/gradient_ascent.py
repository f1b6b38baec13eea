"""Gradient ascent: raise the loss on the forget set.

SGD climbs the cross-entropy of the forget set, and no other data are used. What the forget set shares with the rest is
lost as well, so accuracy nearly always collapses unless the learning rate is tiny. It is the cheapest method that
changes anything.

Pseudo-code:
    EPOCHS times: for each forget batch: step SGD on -cross-entropy; stop once the loss exceeds CEILING

Source: TOFU (Maini et al. 2024), section 4; Cadet et al. 2024, GA.
Budget: EPOCHS epochs over the forget set: EPOCHS * |S| / |R| epochs over the retain set.
Measured: the time of 1.83 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the papers have no ceiling. Without one the weights of a deep network overflow to infinity; beyond
    CEILING nats a batch is forgotten many times over.
Needs: forget images, forget labels
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

LR = 0.01  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 10  # lethe: tune EPOCHS = int(1, 20)
CEILING = 100.0  # nats, mean of a batch
SCHEDULE = "erase"
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    erase(net, retain_loader, forget_loader, val_loader, {})
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    optimizer = sgd(net.parameters(), LR)
    net.train()
    for _ in range(EPOCHS):
        for images, labels in batches(forget_loader, net):
            loss = functional.cross_entropy(net(images), labels)
            if not loss < CEILING:
                return
            step(optimizer, -loss)


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
