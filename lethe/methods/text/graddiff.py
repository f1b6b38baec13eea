"""Gradient difference: raise the loss of the forgotten answers, lower that of the retained ones.

Pseudo-code:
    EPOCHS times: for each forget batch F and as many retain examples R: step AdamW on ALPHA * loss(R) - loss(F)

Source: Maini et al. 2024 (TOFU), section 4, gradient difference; Liu et al. 2022.
Budget: EPOCHS epochs over the forget set, and as many retain examples.
Deterministic: no
Differences: none known with ALPHA 1.
Needs: forget answers
"""

from typing import Any

from torch import Tensor, nn

from lethe.methods.text.common import Batch, mean_loss, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    def loss(forget: Batch, retain: Batch) -> Tensor:
        return ALPHA * mean_loss(net, retain) - mean_loss(net, forget)

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)
