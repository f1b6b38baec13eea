"""Forget (8th place), a reconstruction: cycles of redrawing random layers and distilling on noisy retain images.

In each cycle a few random layers are drawn again. The network is then trained for an epoch to give the original
network's outputs on retain images with added noise, by squared error. No published program was found, and the
hyper-parameters are this project's.

Pseudo-code:
    f0 = frozen copy; CYCLES times: draw LAYERS random layers again
        for each retain batch: x~ = x + NOISE * std(x) * N(0, 1); step on mse(net(x~), f0(x~))

Source: Triantafillou et al. 2024, section 5 and appendix A.4 "Forget".
Budget: 4/3 * CYCLES epochs over the retain set (a second forward pass).
Measured: the time of 4.68 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: section 5 says noisy retain examples, appendix A.4 says the forget set while its formula has x_r; the
    retain set is used here. CYCLES, LAYERS, NOISE and LR are not published.
Needs: second network
"""

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

LR = 0.01  # lethe: tune LR = log(1e-5, 1e-1)
CYCLES = 3  # lethe: tune CYCLES = int(1, 6)
LAYERS = 2  # lethe: tune LAYERS = int(1, 10)
NOISE = 0.1  # lethe: tune NOISE = uniform(0, 1)
SCHEDULE = "(erase repair)*CYCLES"
REPAIR_EPOCHS, REPAIR_LR = 1, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    prepare(net, retain_loader, forget_loader, val_loader, state)
    for _ in range(CYCLES):
        erase(net, retain_loader, forget_loader, val_loader, state)
        repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def prepare(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    state["teacher"] = frozen_copy(net)


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    layers = weight_layers(net)
    for index in torch.randperm(len(layers))[:LAYERS].tolist():
        layers[index].reset_parameters()


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
    for _ in range(epochs):
        for images, _ in batches(retain_loader, net):
            noisy = images + NOISE * images.std() * torch.randn_like(images)
            step(optimizer, functional.mse_loss(net(noisy), state["teacher"](noisy)))


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


def weight_layers(net: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    return [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def frozen_copy(net: nn.Module) -> nn.Module:
    """Return the network as it is, for its outputs only."""
    return copy.deepcopy(net).eval().requires_grad_(False)
