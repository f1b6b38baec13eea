"""CF-k: train only the last k layers on the retain set.

All layers but the last K are frozen, running means of BatchNorm included. The last K convolutions or linear layers,
with the normalisation between them, go on training on the retain set from where they are. Forgetting is left to the
drift of these layers.

Pseudo-code:
    freeze all but the last K layers (Conv2d or Linear, as registered) and the norms after their first
    EPOCHS times: one pass of SGD over the retain set on cross-entropy, cosine

Source: Goel et al. 2022 (inexact unlearning), section 4; Cadet et al. 2024.
Budget: EPOCHS epochs over the retain set (backward through the last K layers only). The paper trains for half as
    many epochs as the original: more than a fifth of retraining for a small network, which the default does not spend.
Measured: the time of 2.86 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: learning rate 0.01 in the text, 0.1 in the program. Cadet et al. count blocks and always add the
    classifier.
Needs: nothing
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

K = 2  # lethe: tune K = int(1, 10)
LR = 0.01  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 4  # lethe: tune EPOCHS = int(1, 20)
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-5  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
NORM_LAYERS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    tail = last_layers(net, K)
    trained = {id(parameter) for module in tail for parameter in module.parameters()}
    wanted = [parameter.requires_grad for parameter in net.parameters()]
    for parameter in net.parameters():
        parameter.requires_grad_(id(parameter) in trained)
    train_tail(net, tail, retain_loader)
    for parameter, wants in zip(net.parameters(), wanted, strict=True):
        parameter.requires_grad_(wants)
    net.eval()


def last_layers(net: nn.Module, k: int) -> list[nn.Module]:
    """Return the last k weight layers and every normalisation registered after the first of them."""
    chosen = weight_layers(net)[-k:]
    order = list(net.modules())
    start = next(position for position, module in enumerate(order) if module is chosen[0])
    norms = [module for module in order[start:] if isinstance(module, NORM_LAYERS)]
    return [*chosen, *norms]


def train_tail(net: nn.Module, tail: list[nn.Module], loader: Any) -> None:
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = sgd(parameters, LR)
    net.eval()  # so that the running means of frozen layers stay
    for module in tail:
        module.train()
    for epoch in range(EPOCHS):
        set_lr(optimizer, cosine(LR, epoch, EPOCHS))
        for images, labels in tail_batches(loader, net, tail):
            step(optimizer, functional.cross_entropy(net(images), labels))


def tail_batches(loader: Any, net: nn.Module, tail: list[nn.Module]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches; a batch of one is left out where a trained BatchNorm could not take it."""
    has_norm = any(isinstance(module, _BatchNorm) for module in tail)
    return ((images, labels) for images, labels in batches(loader, net) if len(labels) > 1 or not has_norm)


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


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def cosine(lr: float, done: int, total: int) -> float:
    """Return the learning rate after `done` of `total` steps of cosine annealing from `lr` to 0."""
    return lr * (1 + math.cos(math.pi * done / total)) / 2


def weight_layers(net: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    return [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
