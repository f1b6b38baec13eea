"""EU-k: draw the last k layers again and train only them.

The weights of all layers but the last K are frozen. The last K convolutions or linear layers are
drawn again and are trained on the retain set, with the normalisation between them. What the frozen part remembers
stays; with K equal to the depth it is full retraining.

Pseudo-code:
    freeze all but the last K layers (Conv2d or Linear, as registered) and the norms after their first
    draw these layers again: Kaiming normal, biases 0
    EPOCHS times: one pass of SGD over the retain set on cross-entropy, gradient clipped to norm CLIP

Source: Goel et al. 2022 (inexact unlearning), section 4; Cadet et al. 2024.
Budget: EPOCHS epochs over the retain set (backward through the last K layers only). The paper trains for as many
    epochs as the original: more than a fifth of retraining for a small network, which the default does not spend.
Measured: the time of 2.16 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: learning rate 0.01 in the text, in the program 0.1 to 0.005 by cosines that start again after 1, 3, 7, ...
    epochs. Running statistics of frozen BatchNorm layers move, as in the program. Cadet et al. count blocks and always
    add the classifier.
Needs: nothing
"""

from typing import Any

import torch
from torch import nn

from lethe.methods.common import falling_rates, last_layers, train_layers

K = 2  # lethe: tune K = int(1, 10)
LR = 0.1  # lethe: tune LR = log(1e-5, 1)
LAST_LR = 0.005  # to which a cosine falls
EPOCHS = 3  # lethe: tune EPOCHS = int(1, 20)
ANNEALING = "restarts"  # lethe: tune ANNEALING = choice("restarts", "cosine")
CLIP = 10.0
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-5  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {"goel": {"EPOCHS": 62}}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    tail = last_layers(net, K)
    draw_layers_again(tail)
    rates = falling_rates(LR, LAST_LR, EPOCHS, ANNEALING)
    train_layers(net, tail, retain_loader, rates, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, clip=CLIP)


@torch.no_grad()
def draw_layers_again(tail: list[nn.Module]) -> None:
    """Draw the layers from the last one on: weights Kaiming normal, biases 0; normalisation stays."""
    for module in reversed([each for each in tail if isinstance(each, nn.Conv2d | nn.Linear)]):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            module.bias.zero_()
