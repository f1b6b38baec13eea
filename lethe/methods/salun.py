"""SalUn: random labels, but only the weights that the forget set's loss depends on most are trained.

A mask selects the THRESHOLD share of all weights with the largest gradient of the forget loss, summed over the forget
set. Random labels on the forget set, then the true labels of the retain set, train only these; the others stay exactly
as they were. With MIXED both sets share each batch instead of following one another.

Pseudo-code:
    mask = the top THRESHOLD share of |sum over forget batches of grad(-ce)|
    as random_label (or, with MIXED, as srl), weights outside the mask restored after each step with RESTORE

Source: Fan et al. 2024, SalUn; Triantafillou et al. 2024 (sequence), Cadet et al. 2024 (mixed).
Budget: ROUNDS * (EPOCHS + ERASE_EPOCHS * |S| / |R|) + |S| / |R| epochs over the retain set.
Measured: the time of 1.85 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: gradients times mask still move the other weights through weight decay; the program restores them since
    2026, as here. That of Cadet et al. does not (RESTORE), keeps its labels (FRESH) and adds the gradients of a batch
    once more for each later one (CUMULATIVE).
Needs: forget images, forget labels
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import batches, mixed, set_lr, uniform_draws, uniform_labels

THRESHOLD = 0.5  # lethe: tune THRESHOLD = uniform(0.1, 0.9)
ERASE_LR = 5e-4  # lethe: tune ERASE_LR = log(1e-5, 1e-1)
ERASE_EPOCHS = 2  # lethe: tune ERASE_EPOCHS = int(1, 5)
LR = 5e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)
ROUNDS = 1  # lethe: tune ROUNDS = int(1, 10)
MIXED = False  # lethe: tune MIXED = choice(False, True)
RESTORE = True  # False: masked gradients only
FRESH = True  # False: with MIXED, the same random labels in each epoch
CUMULATIVE = False  # True: the mask counts a batch's gradient once for it and once for each later batch
SCHEDULE = "(erase repair)*ROUNDS"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {
    "salun": {"ROUNDS": 10, "ERASE_EPOCHS": 1, "EPOCHS": 1, "ERASE_LR": 0.013, "LR": 0.013},
    "deep-unlearn": {
        "MIXED": True,
        "LR": 0.01,
        "EPOCHS": 10,
        "MOMENTUM": 0.0,
        "WEIGHT_DECAY": 0.0,
        "RESTORE": False,
        "FRESH": False,
        "CUMULATIVE": True,
    },
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    prepare(net, retain_loader, forget_loader, val_loader, state)
    if MIXED:
        train_mixed(net, retain_loader, forget_loader, state)
    else:
        for _ in range(ROUNDS):
            erase(net, retain_loader, forget_loader, val_loader, state)
            repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def prepare(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    net.eval()
    gradients = [torch.zeros_like(parameter) for parameter in net.parameters()]
    net.zero_grad()
    for images, labels in batches(forget_loader, net):
        if not CUMULATIVE:
            net.zero_grad()
        (-functional.cross_entropy(net(images), labels)).backward()
        for summed, parameter in zip(gradients, net.parameters(), strict=True):
            if parameter.grad is not None:
                summed.add_(parameter.grad)
    net.zero_grad()
    state["masks"] = saliency_masks(gradients, THRESHOLD)
    state["original"] = [parameter.detach().clone() for parameter in net.parameters()]
    state["optimizer"] = torch.optim.SGD(net.parameters(), LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def saliency_masks(gradients: list[Tensor], share: float) -> list[Tensor]:
    """Return masks of the shapes of `gradients`, true at the `share` of all entries with the largest magnitude."""
    magnitudes = torch.cat([gradient.abs().flatten() for gradient in gradients])
    mask = torch.zeros_like(magnitudes, dtype=torch.bool)
    mask[magnitudes.topk(int(share * len(magnitudes))).indices] = True
    parts = mask.split([gradient.numel() for gradient in gradients])
    return [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    set_lr(state["optimizer"], ERASE_LR)
    net.train()
    for _ in range(ERASE_EPOCHS):
        for images, _ in batches(forget_loader, net):
            logits = net(images)
            masked_step(net, functional.cross_entropy(logits, uniform_labels(logits)), state)


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    set_lr(state["optimizer"], lr)
    net.train()
    for _ in range(epochs):
        for images, labels in batches(retain, net):
            masked_step(net, functional.cross_entropy(net(images), labels), state)


def train_mixed(net: nn.Module, retain_loader: Any, forget_loader: Any, state: dict[str, Any]) -> None:
    device = next(net.parameters()).device
    net.train()
    for epoch in range(EPOCHS):
        if FRESH or epoch == 0:
            draws = uniform_draws(len(forget_loader.dataset), device)
        for images, labels, is_forget, index in mixed(net, retain_loader, forget_loader):
            logits = net(images)
            drawn = (draws[index] * logits.shape[1]).long()
            masked_step(net, functional.cross_entropy(logits, torch.where(is_forget, drawn, labels)), state)


@torch.no_grad()
def masked_step(net: nn.Module, loss: Tensor, state: dict[str, Any]) -> None:
    """Take a step with the gradients inside the mask, and put the weights outside it back with RESTORE."""
    state["optimizer"].zero_grad()
    loss.backward()
    for parameter, mask in zip(net.parameters(), state["masks"], strict=True):
        if parameter.grad is not None:
            parameter.grad.mul_(mask)
    state["optimizer"].step()
    if RESTORE:
        for parameter, mask, original in zip(net.parameters(), state["masks"], state["original"], strict=True):
            parameter.copy_(torch.where(mask, parameter, original))
