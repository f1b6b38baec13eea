"""SCRUB: move away from the original network on the forget set, stay near it on the retain set.

A frozen copy of the original network is the teacher. In the first MAX_STEPS epochs each pass over the forget set raises
the distance to the teacher; every epoch then trains on the retain set to agree with labels and teacher. With REWIND,
the epoch is kept whose forget error is nearest to the error on validation images of the same classes.

Pseudo-code:
    t = frozen copy; KD(s, u) = T^2 * KL(softmax(u / T) || softmax(s / T))
    for e in 0..EPOCHS-1:
        if e < MAX_STEPS: for each forget batch: step on -KD(net(x), t(x))
        for each retain batch: step on GAMMA * ce(net(x), y) + ALPHA * KD(net(x), t(x)); keep a checkpoint
    if REWIND: restore the checkpoint whose forget error is nearest to the last network's validation error

Source: Kurmanji et al. 2023, SCRUB and SCRUB+R; Triantafillou et al. 2024: best 5e-4, 1 epoch, MAX_STEPS 1.
Budget: 4/3 * EPOCHS epochs over the retain set (a second forward pass), and evaluation of the forget set.
Measured: the time of 8.31 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper has GAMMA 0.99 and T 4. The programs have other constants for each experiment, which the presets
    give; the defaults are those of the membership experiments. Cadet et al. always rewind.
Needs: forget images, forget labels, validation, second network
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import batches, frozen_copy, resized, set_lr, step

LR = 5e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 6)
MAX_STEPS = 3  # lethe: tune MAX_STEPS = int(1, 6)
GAMMA = 1.0  # lethe: tune GAMMA = uniform(0, 1)
ALPHA = 0.5  # lethe: tune ALPHA = uniform(0, 1)
T = 4.0  # lethe: tune T = uniform(0.5, 5)
REWIND = True  # lethe: tune REWIND = choice(False, True)
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
DECAY_AT = "3 5 9"  # epochs, from 0, at which the learning rate falls to a tenth
OPTIMIZER = "sgd"  # lethe: tune OPTIMIZER = choice("sgd", "adam")
RETAIN_BATCH = 0  # 0: the loader's own
FORGET_BATCH = 0  # 0: the loader's own
PRESETS = {
    "small-scale": {
        "OPTIMIZER": "adam",
        "WEIGHT_DECAY": 0.1,
        "EPOCHS": 10,
        "DECAY_AT": "5 8 9",
        "T": 2.0,
        "REWIND": False,
        "RETAIN_BATCH": 32,
        "FORGET_BATCH": 64,
    },
    "large-scale": {
        "EPOCHS": 3,
        "MAX_STEPS": 2,
        "GAMMA": 0.99,
        "ALPHA": 0.001,
        "REWIND": False,
        "RETAIN_BATCH": 128,
        "FORGET_BATCH": 32,
    },
    "membership": {"EPOCHS": 5, "MAX_STEPS": 3, "REWIND": True},
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    teacher = frozen_copy(net)
    retain_loader, forget_loader = resized(retain_loader, RETAIN_BATCH), resized(forget_loader, FORGET_BATCH)
    optimizer = make_optimizer(net)
    checkpoints = []
    for epoch in range(EPOCHS):
        set_lr(optimizer, LR * 0.1 ** sum(epoch >= int(at) for at in DECAY_AT.split()))
        net.train()
        if epoch < MAX_STEPS:
            ascend(net, teacher, forget_loader, optimizer)
        descend(net, teacher, retain_loader, optimizer)
        if REWIND:
            checkpoints.append((error(net, forget_loader), copy.deepcopy(net.state_dict())))
    if checkpoints:
        rewind(net, checkpoints, forget_loader, val_loader)
    net.eval()


def make_optimizer(net: nn.Module) -> torch.optim.Optimizer:
    if OPTIMIZER == "adam":
        return torch.optim.Adam(net.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    return torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def distillation(student: Tensor, teacher: Tensor) -> Tensor:
    """Return T^2 times the mean KL divergence of the teacher's softened outputs from the student's. Logits: [n, C]."""
    target = (teacher / T).softmax(1)
    return functional.kl_div((student / T).log_softmax(1), target, reduction="batchmean") * T * T


def ascend(net: nn.Module, teacher: nn.Module, loader: Any, optimizer: torch.optim.Optimizer) -> None:
    for images, _ in batches(loader, net):
        step(optimizer, -distillation(net(images), teacher(images)))


def descend(net: nn.Module, teacher: nn.Module, loader: Any, optimizer: torch.optim.Optimizer) -> None:
    for images, labels in batches(loader, net):
        logits = net(images)
        loss = GAMMA * functional.cross_entropy(logits, labels) + ALPHA * distillation(logits, teacher(images))
        step(optimizer, loss)


@torch.no_grad()
def error(net: nn.Module, loader: Any, classes: Tensor | None = None) -> float:
    """Return the share of wrong predictions, over images of these classes if any are given."""
    net.eval()
    wrong, total = 0, 0
    for images, labels in batches(loader, net):
        counted = torch.ones_like(labels, dtype=torch.bool) if classes is None else torch.isin(labels, classes)
        wrong += int(((net(images).argmax(1) != labels) & counted).sum())
        total += int(counted.sum())
    return wrong / max(total, 1)


def rewind(
    net: nn.Module, checkpoints: list[tuple[float, dict[str, Tensor]]], forget_loader: Any, val_loader: Any
) -> None:
    """Restore the checkpoint whose forget error is nearest to the validation error on the forget set's classes."""
    classes = torch.cat([labels for _, labels in batches(forget_loader, net)]).unique()
    target = error(net, val_loader, classes)
    _, state = min(checkpoints, key=lambda checkpoint: abs(checkpoint[0] - target))
    net.load_state_dict(state)
