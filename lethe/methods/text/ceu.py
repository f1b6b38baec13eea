"""CE-U: learn from the network's own outputs without the forgotten token.

Pseudo-code:
    EPOCHS times: for each forget batch F: t = softmax(net(F) with each answer token's own entry at -infinity), constant
        step AdamW on the mean cross-entropy of net(F) with t over the answer tokens but the first SPARED of each answer

Source: Yang 2025 (CE-U), section 3 and the footnote of its training settings; constants as in open-unlearning.
Budget: EPOCHS epochs over the forget set.
Deterministic: no
Differences: none known.
Needs: forget answers
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.text.common import Batch, compute_logits, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
SPARED = 1  # lethe: tune SPARED = int(0, 3)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    def loss(forget: Batch, _: Batch) -> Tensor:
        return ceu_loss(compute_logits(net, forget), forget["labels"])

    train(net, loss, forget_loader, None, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)


def ceu_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy with the targets, 0 if every token is spared. Logits: [n, length, vocabulary]."""
    answer = labels != -100
    used = (answer & (answer.cumsum(1) > SPARED))[:, 1:]
    own, forgotten = logits[:, :-1][used], labels[:, 1:][used]
    target = own.detach().scatter(1, forgotten[:, None], -torch.inf).softmax(-1)
    return functional.cross_entropy(own, target, reduction="sum") / max(1, len(own))
