"""Task-vector negation: learn the forget set even better, then go the other way.

A copy is trained further on the forget set; the difference of its weights, the task vector, is subtracted.

Pseudo-code:
    r = copy; EPOCHS times: for each forget batch: step AdamW on loss(r, F)
    weights -= SCALE * (weights of r - weights)

Source: Ilharco et al. 2023 (task arithmetic), section 3.
Budget: EPOCHS epochs over the forget set.
Deterministic: no
Differences: the papers choose SCALE on validation data; here it is a constant.
Needs: forget answers, second network
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from lethe.methods.text.common import Batch, mean_loss, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
SCALE = 1.0  # lethe: tune SCALE = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    reinforced = copy.deepcopy(net)

    def loss(forget: Batch, _: Batch) -> Tensor:
        return mean_loss(reinforced, forget)

    train(reinforced, loss, forget_loader, None, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)
    subtract(net, reinforced)
    net.eval()


@torch.no_grad()
def subtract(net: nn.Module, reinforced: nn.Module) -> None:
    """Move the weights by SCALE away from those of the reinforced network."""
    for own, learned in zip(net.parameters(), reinforced.parameters(), strict=True):
        own.sub_(SCALE * (learned - own))
