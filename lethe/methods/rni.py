"""RNI (Sun, 7th place): reset the classifier, then epochs that add noise to random tensors and train only these.

The last layer is drawn again. In each of the first epochs some tensors are picked at random, most of them get Gaussian
noise, and only the picked ones and the normalisation layers are trained on the retain set. The last epochs train
everything, the very last with a larger learning rate.

Pseudo-code:
    draw the last layer again
    for e in 0..NOISED_EPOCHS-1: pick LAYERS tensors outside normalisation
        if e > 0: add NOISE * N(0, 1) to int(RATIO * LAYERS) of them, but to none that was picked in an earlier epoch
        one pass over the retain set, only the picked tensors and the normalisation trained
    EPOCHS times: a new SGD, one pass over the retain set, all trained; the last with LAST_FACTOR times the rate

Source: Triantafillou et al. 2024, appendix A.4 "Sun"; Cadet et al. 2024, RNI.
Budget: NOISED_EPOCHS + EPOCHS epochs over the retain set.
Measured: the time of 10.09 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper says that the selected layers get noise; the program adds it to six of nine picked tensors, to
    none before the first epoch and to none twice, and takes layers for normalisation by their names (BY_NAME). Where
    there are fewer tensors than LAYERS all are picked.
Needs: nothing
"""

from typing import Any

import torch
from torch import nn

from lethe.methods.common import NORM_LAYERS, train, weight_layers

LR = 2e-4  # lethe: tune LR = log(1e-5, 1e-1)
LAST_FACTOR = 5.0  # lethe: tune LAST_FACTOR = log(1, 10)
NOISED_EPOCHS = 5  # lethe: tune NOISED_EPOCHS = int(1, 6)
EPOCHS = 4  # lethe: tune EPOCHS = int(1, 6)
LAYERS = 9  # lethe: tune LAYERS = int(1, 20)
RATIO = 0.7  # lethe: tune RATIO = uniform(0, 1)
NOISE = 0.04  # lethe: tune NOISE = uniform(0, 0.2)
BY_NAME = False  # True: normalisation is what has "bn" in its name, which leaves out a ResNet's downsampling
SCHEDULE = "erase repair"
PRESETS = {"deep-unlearn": {"BY_NAME": True}}
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
    parameters = dict(net.named_parameters())
    norms = normalisation(net, parameters)
    candidates = [name for name in parameters if name not in norms]
    earlier: set[str] = set()
    for epoch in range(NOISED_EPOCHS):
        picked = pick(candidates, LAYERS)
        if epoch > 0:
            add_noise(parameters, pick(picked, int(RATIO * LAYERS)), earlier)
        earlier.update(picked)
        trained = [each for name, each in parameters.items() if name in picked or name in norms]
        train(net, retain_loader, sgd(trained), [LR])
        net.zero_grad()


def normalisation(net: nn.Module, parameters: dict[str, nn.Parameter]) -> set[str]:
    """Return the names of the parameters of normalisation layers, or with BY_NAME those that have "bn" in them."""
    if BY_NAME:
        return {name for name in parameters if "bn" in name}
    inside = {id(each) for module in net.modules() if isinstance(module, NORM_LAYERS) for each in module.parameters()}
    return {name for name, parameter in parameters.items() if id(parameter) in inside}


def pick(names: list[str], n: int) -> list[str]:
    """Return n of the names at random, all where there are fewer."""
    return [names[index] for index in torch.randperm(len(names))[:n].tolist()]


@torch.no_grad()
def add_noise(parameters: dict[str, nn.Parameter], names: list[str], earlier: set[str]) -> None:
    """Add noise to the tensors of these names, but for those that an earlier epoch picked."""
    for name in sorted(names):
        noise = torch.randn_like(parameters[name])
        if name not in earlier:
            parameters[name].add_(NOISE * noise)


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    for epoch in range(epochs):
        rate = lr * (LAST_FACTOR if epoch == epochs - 1 else 1.0)
        train(net, retain, sgd(list(net.parameters())), [rate])


def sgd(parameters: list[nn.Parameter]) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
