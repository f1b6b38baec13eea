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

from typing import Any

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
PRESETS = {"goel": {"EPOCHS": 30}}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    rates = falling_rates(LR, LAST_LR, EPOCHS, ANNEALING)
    train_layers(
        net, last_layers(net, K), retain_loader, rates, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, clip=CLIP
    )
