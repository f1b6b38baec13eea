"""KDE (Amnesiacs, 6th place): draw the first and the last layer again, then distil from the original.

The first convolution and the last linear layer are drawn again. The network first learns the original's softened
outputs on the validation set, which holds nothing to forget, and then trains on the retain set with labels and the
original's outputs together. The original's knowledge returns without the forget set being shown.

Pseudo-code:
    t = frozen copy; draw first and last layer again
    WARM_UP_EPOCHS times over the validation set: step on KL(softmax(t(x) / T) || softmax(net(x) / T))
    EPOCHS times over the retain set, cosine: step on ce(net(x), y) + soft cross-entropy_T + KL_T

Source: Triantafillou et al. 2024, appendix A.4 "Amnesiacs"; Cadet et al. 2024, KDE.
Budget: 4/3 * (EPOCHS + WARM_UP_EPOCHS * |V| / |R|) epochs over the retain set (a second forward pass).
Measured: the time of 6.72 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper says symmetric KL divergence; the program adds KL(teacher || student) and the soft
    cross-entropy, which have the same gradient, and no reverse term.
Needs: validation, second network
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import annealed, batches, frozen_copy, step, train, weight_layers

WARM_UP_LR = 9e-4  # lethe: tune WARM_UP_LR = log(1e-5, 1e-1)
WARM_UP_EPOCHS = 3  # lethe: tune WARM_UP_EPOCHS = int(1, 6)
LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 3  # lethe: tune EPOCHS = int(1, 6)
T = 5.0  # lethe: tune T = uniform(0.5, 5)
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    prepare(net, retain_loader, forget_loader, val_loader, state)
    erase(net, retain_loader, forget_loader, val_loader, state)
    repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def prepare(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    state["teacher"] = frozen_copy(net)


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    layers = weight_layers(net)
    first = next((layer for layer in layers if isinstance(layer, nn.Conv2d)), layers[0])
    first.reset_parameters()
    layers[-1].reset_parameters()
    optimizer = torch.optim.SGD(net.parameters(), lr=WARM_UP_LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    net.train()
    for _ in range(WARM_UP_EPOCHS):
        for images, _ in batches(val_loader, net):
            step(optimizer, soft_kl(net(images), state["teacher"](images)))


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)

    def distilled(logits: Tensor, labels: Tensor, images: Tensor) -> Tensor:
        original = state["teacher"](images)
        softened = soft_cross_entropy(logits, original) + soft_kl(logits, original)
        return functional.cross_entropy(logits, labels) + softened

    train(net, retain, optimizer, annealed(lr, epochs), distilled)


def soft_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean KL divergence of the softened teacher from the softened student. Logits: [n, C]."""
    target = (teacher / T).softmax(1)
    return functional.kl_div((student / T).log_softmax(1), target, reduction="batchmean")


def soft_cross_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean cross-entropy of the softened outputs. Logits: [n, C]."""
    return -((teacher / T).softmax(1) * (student / T).log_softmax(1)).sum(1).mean()
