"""CF-k: train only the last k layers on the retain set.

The weights of all layers but the last K are frozen. The last K convolutions or linear layers,
with the normalisation between them, go on training on the retain set from where they are. Forgetting is left to the
drift of these layers.

Pseudo-code:
    freeze all but the last K layers (Conv2d or Linear, as registered) and the norms after their first
    EPOCHS times: one pass of SGD over the retain set on cross-entropy, gradient clipped to norm CLIP

Source: Goel et al. 2022 (inexact unlearning), section 4; Cadet et al. 2024.
Budget: EPOCHS epochs over the retain set (backward through the last K layers only). The paper trains for half as
    many epochs as the original: more than a fifth of retraining for a small network, which the default does not spend.
Measured: the time of 2.26 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: learning rate 0.01 in the text, in the program 0.1 to 0.005 by cosines that start again after 1, 3, 7, ...
    epochs. Running statistics of frozen BatchNorm layers move, as in the program. Cadet et al. count blocks and always
    add the classifier.
Needs: nothing
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lethe.methods.common import batches, last_layers, set_lr

K = 2  # lethe: tune K = int(1, 10)
LR = 0.1  # lethe: tune LR = log(1e-5, 1)
LAST_LR = 0.005  # to which a cosine falls
EPOCHS = 3  # lethe: tune EPOCHS = int(1, 20)
ANNEALING = "restarts"  # lethe: tune ANNEALING = choice("restarts", "cosine")
CLIP = 10.0
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-5  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {"goel": {"EPOCHS": 30}}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    tail = last_layers(net, K)
    trained = {id(parameter) for module in tail for parameter in module.parameters()}
    wanted = [parameter.requires_grad for parameter in net.parameters()]
    for parameter in net.parameters():
        parameter.requires_grad_(id(parameter) in trained)
    train_tail(net, retain_loader)
    for parameter, wants in zip(net.parameters(), wanted, strict=True):
        parameter.requires_grad_(wants)
    net.eval()


def train_tail(net: nn.Module, loader: Any) -> None:
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    net.train()
    for epoch in range(EPOCHS):
        set_lr(optimizer, learning_rate(epoch))
        for images, labels in batches(loader, net):
            optimizer.zero_grad()
            functional.cross_entropy(net(images), labels).backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()


def learning_rate(epoch: int) -> float:
    """Return the learning rate of an epoch: one cosine, or cosines over 1, 2, 4, ... epochs, from LR to LAST_LR."""
    length, done = EPOCHS, epoch
    if ANNEALING == "restarts":
        length = 1 << ((epoch + 1).bit_length() - 1)
        done = epoch + 1 - length
    return LAST_LR + (LR - LAST_LR) * (1 + math.cos(math.pi * done / length)) / 2
