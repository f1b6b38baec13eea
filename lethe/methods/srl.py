"""Successive random labels: both sets shuffled together, the forget labels drawn at random.

Retain examples keep their labels; forget examples get a random class, the true one too, drawn again for each epoch.
Both sets share every batch, so repair happens while the forget set is being pushed out. It needs no labels of the
forget set.

Pseudo-code:
    EPOCHS times, for each batch of retain and forget examples together:
        y[forget] = uniform labels, new ones in each epoch with FRESH; step SGD on ce(net(x), y)

Source: Cadet et al. 2024, SRL; Graves et al. 2021.
Budget: EPOCHS epochs over the retain and the forget set.
Measured: the time of 2.93 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the text draws the labels again for each epoch; the program makes its generator again for each with the
    same seed, so that the labels stay: FRESH = False.
Needs: forget images
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lethe.methods.common import annealed, mixed, set_lr, step, uniform_draws

LR = 1e-2  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 2  # lethe: tune EPOCHS = int(1, 6)
ANNEALING = "constant"  # lethe: tune ANNEALING = choice("constant", "cosine")
FRESH = True  # lethe: tune FRESH = choice(True, False)
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {"deep-unlearn": {"LR": 1e-2, "EPOCHS": 10, "FRESH": False}}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    device = next(net.parameters()).device
    net.train()
    for epoch, rate in enumerate(annealed(LR, EPOCHS, ANNEALING)):
        set_lr(optimizer, rate)
        if FRESH or epoch == 0:
            draws = uniform_draws(len(forget_loader.dataset), device)
        for images, labels, is_forget, index in mixed(net, retain_loader, forget_loader):
            logits = net(images)
            drawn = (draws[index] * logits.shape[1]).long()
            step(optimizer, functional.cross_entropy(logits, torch.where(is_forget, drawn, labels)))
    net.eval()
