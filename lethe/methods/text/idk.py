"""Refusal: train on "I don't know" for the questions to forget, and on the retain set.

Pseudo-code:
    EPOCHS times: for each forget batch with refusals I and as many retain examples R:
        step AdamW on the mean token loss of I and R together

Source: Maini et al. 2024 (TOFU), section 4, preference optimisation without a preference.
Budget: EPOCHS epochs over the forget set, and as many retain examples.
Deterministic: no
Differences: a question has one refusal, drawn when the data are made; the published program draws one every time.
Needs: refusals
"""

from typing import Any

import torch
from torch import Tensor, nn

from lethe.methods.text.common import Batch, n_tokens, refusals, token_losses, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    def loss(forget: Batch, retain: Batch) -> Tensor:
        parts = [refusals(forget), retain]
        total = sum(n_tokens(part).sum() for part in parts)
        return torch.stack([token_losses(net, part).sum() for part in parts]).sum() / total

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)
