"""Forget (8th place), a reconstruction: cycles of redrawing random layers and distilling on noisy retain images.

In each cycle a few random layers are drawn again. The network is then trained for an epoch to give the original
network's outputs on retain images with added noise, by squared error. No published program was found, and the
hyper-parameters are this project's.

Pseudo-code:
    f0 = frozen copy; CYCLES times: draw LAYERS random layers again
        for each retain batch: x~ = x + NOISE * std(x) * N(0, 1); step on mse(net(x~), f0(x~))

Source: Triantafillou et al. 2024, section 5 and appendix A.4 "Forget".
Budget: 4/3 * CYCLES epochs over the retain set (a second forward pass).
Measured: the time of 4.81 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: section 5 says noisy retain examples, appendix A.4 says the forget set while its formula has x_r; the
    retain set is used here. CYCLES, LAYERS, NOISE and LR are not published.
Needs: second network
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lethe.methods.common import batches, frozen_copy, step, weight_layers

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


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    net.train()
    for _ in range(epochs):
        for images, _ in batches(retain, net):
            noisy = images + NOISE * images.std() * torch.randn_like(images)
            step(optimizer, functional.mse_loss(net(noisy), state["teacher"](noisy)))
