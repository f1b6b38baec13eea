"""Gradient ascent: raise the loss of the forgotten answers.

The network climbs the loss of the answers to forget; nothing holds the rest, so answers turn to gibberish soon.

Pseudo-code:
    EPOCHS times: for each forget batch: step AdamW on -mean token loss

Source: Maini et al. 2024 (TOFU), section 4, gradient ascent.
Budget: EPOCHS epochs over the forget set.
Deterministic: no
Differences: none known.
Needs: forget answers
"""

from typing import Any

from torch import Tensor, nn

from lethe.methods.text.common import Batch, mean_loss, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    def loss(forget: Batch, _: Batch) -> Tensor:
        return -mean_loss(net, forget)

    train(net, loss, forget_loader, None, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)
