"""CFW (Seif, 3rd place): noise on the first convolution, then finetuning that favours the largest class.

Gaussian noise of standard deviation SIGMA is added to the first convolution. Four epochs on the retain set follow in
which each batch's loss is multiplied by the mean weight of its labels: 1 for the largest class, OTHERS for the rest.
Before the last epoch a little noise is added once more.

Pseudo-code:
    w = w + SIGMA * N(0, 1) in the first convolution (NOISE = "all": in all)
    EPOCHS times (before the last: w = w + LAST_SIGMA * N(0, 1)): for each retain batch:
        step on ce(net(x), y) * mean of weight[y]; learning rate annealed by a cosine

Source: Triantafillou et al. 2024, appendix A.4 "Seif"; Cadet et al. 2024, CFW.
Budget: EPOCHS epochs over the retain set.
Measured: the time of 4.04 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper adds noise to convolution weights and takes a weighted mean of per-example losses; the program
    reaches only direct children named "conv" (the first convolution of a ResNet-18) and multiplies the batch's mean
    loss by its mean weight. Cadet et al. use balanced class weights. Networks without convolutions: the first linear
    layer takes the noise.
Needs: nothing
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import annealed, class_counts, train, weight_layers

SIGMA = 0.6  # lethe: tune SIGMA = uniform(0, 1)
LAST_SIGMA = 0.005  # lethe: tune LAST_SIGMA = uniform(0, 0.1)
NOISE = "first"  # lethe: tune NOISE = choice("first", "all")
OTHERS = 0.05  # lethe: tune OTHERS = uniform(0, 1)
LR = 7e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 4  # lethe: tune EPOCHS = int(1, 6)
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
    add_noise(net, SIGMA)
    state["last_noise"] = True


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    weights = class_weights(class_counts(retain, net)).to(next(net.parameters()).dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)

    def weighted(logits: Tensor, labels: Tensor, images: Tensor) -> Tensor:
        return weighted_loss(logits, labels, weights)

    for epoch, rate in enumerate(annealed(lr, epochs)):
        if epoch == epochs - 1 and state.get("last_noise"):
            add_noise(net, LAST_SIGMA)
        train(net, retain, optimizer, [rate], weighted)


@torch.no_grad()
def add_noise(net: nn.Module, sigma: float) -> None:
    layers = weight_layers(net)
    layers = [layer for layer in layers if isinstance(layer, nn.Conv2d)] or layers
    for layer in layers if NOISE == "all" else layers[:1]:
        layer.weight.add_(sigma * torch.randn_like(layer.weight))


def class_weights(counts: Tensor) -> Tensor:
    """Return the weight of each class, 1 for the largest. counts: [C]."""
    weights = torch.full_like(counts, OTHERS, dtype=torch.float64)
    weights[counts.argmax()] = 1.0
    return weights


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return the mean cross-entropy times the mean weight of the labels. logits: [n, C]; weights: [C]."""
    return functional.cross_entropy(logits, labels) * weights[labels].mean()


def loss_scale(net: nn.Module, retain_loader: Any) -> float:
    """Return the mean factor on a batch's loss, by which an equal learning rate has another effect."""
    counts = class_counts(retain_loader, net)
    return float((class_weights(counts) * counts).sum() / counts.sum())
