"""RNI (Sun, 7th place): reset the classifier, then epochs that add noise to random tensors and train only these.

The last layer is drawn again. In each of the first epochs some tensors are picked at random, most of them get Gaussian
noise, and only the picked ones and the normalisation layers are trained on the retain set. The last epochs train
everything, the very last with a larger learning rate.

Pseudo-code:
    draw the last layer again
    for e in 0..NOISED_EPOCHS-1: pick LAYERS tensors outside normalisation
        if e > 0: add NOISE * N(0, 1) to int(RATIO * LAYERS) of them
        one pass over the retain set, only the picked tensors and the normalisation trained
    EPOCHS times: one pass over the retain set, all trained; the last with LAST_FACTOR times the learning rate

Source: Triantafillou et al. 2024, appendix A.4 "Sun"; Cadet et al. 2024, RNI.
Budget: NOISED_EPOCHS + EPOCHS epochs over the retain set.
Measured: the time of 9.86 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper says that the selected layers get noise; the program adds it to six of nine picked tensors, and
    to none before the first epoch. Where there are fewer tensors than LAYERS all are picked.
Needs: nothing
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

LR = 2e-4  # lethe: tune LR = log(1e-5, 1e-1)
LAST_FACTOR = 5.0  # lethe: tune LAST_FACTOR = log(1, 10)
NOISED_EPOCHS = 5  # lethe: tune NOISED_EPOCHS = int(1, 6)
EPOCHS = 4  # lethe: tune EPOCHS = int(1, 6)
LAYERS = 9  # lethe: tune LAYERS = int(1, 20)
RATIO = 0.7  # lethe: tune RATIO = uniform(0, 1)
NOISE = 0.04  # lethe: tune NOISE = uniform(0, 0.2)
NORM_LAYERS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    erase(net, retain_loader, forget_loader, val_loader, state)
    repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    weight_layers(net)[-1].reset_parameters()
    norms = [
        parameter for module in net.modules() if isinstance(module, NORM_LAYERS) for parameter in module.parameters()
    ]
    norm_ids = {id(parameter) for parameter in norms}
    others = [parameter for parameter in net.parameters() if id(parameter) not in norm_ids]
    net.train()
    for epoch in range(NOISED_EPOCHS):
        picked = [others[index] for index in torch.randperm(len(others))[:LAYERS].tolist()]
        if epoch > 0:
            add_noise(picked)
        train_only([*picked, *norms], net, retain_loader)


@torch.no_grad()
def add_noise(picked: list[nn.Parameter]) -> None:
    for parameter in picked[: int(RATIO * len(picked))]:
        parameter.add_(NOISE * torch.randn_like(parameter))


def train_only(parameters: list[nn.Parameter], net: nn.Module, loader: Any) -> None:
    optimizer = sgd(parameters, LR)
    for images, labels in batches(loader, net):
        net.zero_grad()
        step(optimizer, functional.cross_entropy(net(images), labels))


def repair(
    net: nn.Module,
    retain_loader: Any,
    forget_loader: Any,
    val_loader: Any,
    state: dict[str, Any],
    epochs: int,
    lr: float,
) -> None:
    optimizer = sgd(net.parameters(), lr)
    net.train()
    for epoch in range(epochs):
        set_lr(optimizer, lr * (LAST_FACTOR if epoch == epochs - 1 else 1.0))
        for images, labels in batches(retain_loader, net):
            step(optimizer, functional.cross_entropy(net(images), labels))


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


def weight_layers(net: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    return [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
