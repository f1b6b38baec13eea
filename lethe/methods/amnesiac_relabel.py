"""Amnesiac, by relabelling: give every forget example one wrong label for good, and train on both sets.

A wrong label is drawn once for each forget example, all wrong classes equally likely. The network is then trained with
Adam on the whole retain set and the relabelled forget set together. A wrong label that stays is learned, so outputs
on the forget set end worse than chance.

Pseudo-code:
    for each forget example: its label = a uniform wrong one
    EPOCHS times: for each batch of retain and forget examples together: step Adam on ce(net(x), y)

Source: MIAU paper, "Amnesiac", as the program that it cites (Foster et al. 2024) does it: Adam 1e-4, 3 epochs.
Budget: EPOCHS epochs over the retain and the forget set.
Measured: the time of 3.85 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the text of the MIAU paper, after Graves et al. 2021, describes the reversal of logged gradients; the
    programs relabel. The reversal needs logs of the original training and is outside what an entry is given.
Needs: forget images, forget labels
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import mixed, step, uniform_draws

LR = 1e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 3  # lethe: tune EPOCHS = int(1, 6)
BATCH_SIZE = 128  # lethe: tune BATCH_SIZE = choice(64, 128, 256)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    net.train()
    device = next(net.parameters()).device
    offsets = uniform_draws(len(forget_loader.dataset), device)
    for _ in range(EPOCHS):
        for images, labels, is_forget, index in mixed(net, retain_loader, forget_loader, batch_size=BATCH_SIZE):
            logits = net(images)
            wrong = wrong_labels(labels, offsets[index], logits.shape[1])
            step(optimizer, functional.cross_entropy(logits, torch.where(is_forget, wrong, labels)))
    net.eval()


def wrong_labels(labels: Tensor, offsets: Tensor, n_classes: int) -> Tensor:
    """Return for each label one of the other classes, which of them by its offset in [0, 1)."""
    return (labels + 1 + (offsets * (n_classes - 1)).long()) % n_classes
