"""SalUn: random labels, but only the weights that the forget set's loss depends on most are trained.

A mask selects the THRESHOLD share of all weights with the largest gradient of the forget loss, summed over the forget
set. Random labels on the forget set, then the true labels of the retain set, train only these; the others stay exactly
as they were. With MIXED both sets share each batch instead of following one another.

Pseudo-code:
    mask = the top THRESHOLD share of |sum over forget batches of grad(-ce)|
    as random_label (or, with MIXED, as srl), weights outside the mask restored after each step

Source: Fan et al. 2024, SalUn; Triantafillou et al. 2024 (sequence), Cadet et al. 2024 (mixed).
Budget: EPOCHS + (ERASE_EPOCHS + 1) * |S| / |R| epochs over the retain set.
Measured: the time of 1.70 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: gradients times mask still move the other weights through momentum and weight decay; the program
    restores them since 2026, as here.
Needs: forget images, forget labels
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

THRESHOLD = 0.5  # lethe: tune THRESHOLD = uniform(0.1, 0.9)
ERASE_LR = 5e-4  # lethe: tune ERASE_LR = log(1e-5, 1e-1)
ERASE_EPOCHS = 2  # lethe: tune ERASE_EPOCHS = int(1, 5)
LR = 5e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)
MIXED = False  # lethe: tune MIXED = choice(False, True)
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    prepare(net, retain_loader, forget_loader, val_loader, state)
    if MIXED:
        train_mixed(net, retain_loader, forget_loader, state)
    else:
        erase(net, retain_loader, forget_loader, val_loader, state)
        repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def prepare(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    net.eval()
    for images, labels in batches(forget_loader, net):
        (-functional.cross_entropy(net(images), labels)).backward()
    gradients = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in net.parameters()
    ]
    state["masks"] = saliency_masks(gradients, THRESHOLD)
    state["original"] = [parameter.detach().clone() for parameter in net.parameters()]
    net.zero_grad()


def saliency_masks(gradients: list[Tensor], share: float) -> list[Tensor]:
    """Return masks of the shapes of `gradients`, true at the `share` of all entries with the largest magnitude."""
    magnitudes = torch.cat([gradient.abs().flatten() for gradient in gradients])
    mask = torch.zeros_like(magnitudes, dtype=torch.bool)
    mask[magnitudes.topk(round(share * len(magnitudes))).indices] = True
    parts = mask.split([gradient.numel() for gradient in gradients])
    return [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    optimizer = sgd(net.parameters(), ERASE_LR)
    net.train()
    for _ in range(ERASE_EPOCHS):
        for images, _ in batches(forget_loader, net):
            logits = net(images)
            masked_step(net, optimizer, functional.cross_entropy(logits, uniform_labels(logits)), state)


def repair(
    net: nn.Module,
    retain_loader: Any,
    forget_loader: Any,
    val_loader: Any,
    state: dict[str, Any],
    epochs: int,
    lr: float,
) -> None:
    optimizer = sgd(net.parameters(), lr)
    net.train()
    for epoch in range(epochs):
        set_lr(optimizer, cosine(lr, epoch, epochs))
        for images, labels in batches(retain_loader, net):
            masked_step(net, optimizer, functional.cross_entropy(net(images), labels), state)


def train_mixed(net: nn.Module, retain_loader: Any, forget_loader: Any, state: dict[str, Any]) -> None:
    optimizer = sgd(net.parameters(), LR)
    net.train()
    for epoch in range(EPOCHS):
        set_lr(optimizer, cosine(LR, epoch, EPOCHS))
        for images, labels, is_forget, _ in mixed(net, retain_loader, forget_loader):
            logits = net(images)
            targets = torch.where(is_forget, uniform_labels(logits), labels)
            masked_step(net, optimizer, functional.cross_entropy(logits, targets), state)


def masked_step(net: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, state: dict[str, Any]) -> None:
    """Take a step and put the weights outside the mask back."""
    step(optimizer, loss)
    with torch.no_grad():
        for parameter, mask, original in zip(net.parameters(), state["masks"], state["original"], strict=True):
            parameter.copy_(torch.where(mask, parameter, original))


def batches(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, labels) of one pass on the network's device; BatchNorm cannot train on a batch of one."""
    device = next(net.parameters()).device
    skips_single = net.training and any(isinstance(module, _BatchNorm) for module in net.modules())
    for sample in loader:
        if not (skips_single and len(sample["image"]) == 1):
            yield sample["image"].to(device), sample["label"].to(device)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def cosine(lr: float, done: int, total: int) -> float:
    """Return the learning rate after `done` of `total` steps of cosine annealing from `lr` to 0."""
    return lr * (1 + math.cos(math.pi * done / total)) / 2


def mixed(
    net: nn.Module, retain_loader: Any, forget_loader: Any, *, share: float = 1.0, batch_size: int | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield (images, labels, is_forget, index) of `share` of the retain set and the forget set, shuffled together."""
    device = next(net.parameters()).device
    size = batch_size or retain_loader.batch_size
    chosen = torch.randperm(len(retain_loader.dataset))[: round(share * len(retain_loader.dataset))].tolist()
    examples = [(retain_loader.dataset, index, False) for index in chosen]
    examples += [(forget_loader.dataset, index, True) for index in range(len(forget_loader.dataset))]
    for part in torch.randperm(len(examples)).split(size):
        if len(part) == 1 and net.training and any(isinstance(module, _BatchNorm) for module in net.modules()):
            continue  # BatchNorm cannot train on a batch of one
        picked = [examples[position] for position in part.tolist()]
        samples = [dataset[index] for dataset, index, _ in picked]
        yield (
            torch.stack([sample["image"] for sample in samples]).to(device),
            torch.tensor([int(sample["label"]) for sample in samples], device=device),
            torch.tensor([is_forget for *_, is_forget in picked], device=device),
            torch.tensor([index for _, index, _ in picked], device=device),
        )


def uniform_labels(logits: Tensor) -> Tensor:
    """Return one label for each row, each class equally likely, the true one too."""
    return torch.randint(logits.shape[1], (len(logits),), device=logits.device)
