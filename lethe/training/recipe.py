"""A competition's training recipe as optimiser, learning rate, loss weights and augmentation."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.competition.file import Training

MIXING_PROBABILITY, MIXING_ALPHA = 0.5, 1.0  # Goel et al. 2023, section 4.3


def make_optimizer(
    recipe: Training, parameters: Iterable[nn.Parameter], *, capturable_on: torch.device | None = None
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser; stacked parameters of many models are stepped as one.

    capturable_on: a CUDA device on which a step is to be captured in a graph; the rate is then a tensor there.
    """
    options: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
    if capturable_on is not None:
        options |= {"lr": torch.tensor(recipe.learning_rate, device=capturable_on), "fused": True}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(list(parameters), momentum=recipe.momentum, **options)
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    if capturable_on is not None:
        options["capturable"] = True
    return kind(list(parameters), **options)


def learning_rate(recipe: Training, *, step: int, steps_per_epoch: int) -> float:
    """Return the rate of optimiser step `step` (0-based): a warm-up, then constant, cosine to 0, or in steps."""
    epoch = step / steps_per_epoch
    if epoch < recipe.warmup_epochs:
        return recipe.learning_rate * (step + 1) / (recipe.warmup_epochs * steps_per_epoch)
    if recipe.schedule == "cosine":
        progress = (epoch - recipe.warmup_epochs) / (recipe.epochs - recipe.warmup_epochs)
        return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    if recipe.schedule == "step":
        return recipe.learning_rate * recipe.gamma ** sum(epoch >= milestone for milestone in recipe.milestones)
    return recipe.learning_rate


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # in place: a captured step reads this tensor
        else:
            group["lr"] = rate


def class_weights(recipe: Training, labels: Tensor, n_classes: int) -> Tensor | None:
    """Return 1 / (occurrences of the class), or None. Source: Triantafillou et al. 2024, section A.7.1."""
    if recipe.class_weights == "none":
        return None
    counts = torch.bincount(labels, minlength=n_classes).clamp_min(1)
    return counts.reciprocal().float()


def augment(recipe: Training, images: Tensor, generator: torch.Generator) -> Tensor:
    """Return `images` [n, C, H, W] flipped at random, and shifted by up to 4 pixels where the recipe says so."""
    if recipe.augmentation == "none":
        return images
    if recipe.augmentation == "crop-flip":
        images = _shifted(images, generator, padding=4)
    flipped = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(to_device(flipped, images.device).view(-1, 1, 1, 1), images.flip(-1), images)


def mix(recipe: Training, images: Tensor, labels: Tensor, *, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return images and labels, in half of the batches mixed in pairs; labels are then shares [n, classes].

    Draws from torch's global generator. Sources: Yun et al. 2019 (CutMix), Zhang et al. 2018 (MixUp).
    """
    if recipe.mixing == "none" or float(torch.rand(())) >= MIXING_PROBABILITY:
        return images, labels
    from torchvision.transforms import v2  # noqa: PLC0415 - two seconds that most recipes need not pay

    kind = v2.CutMix if recipe.mixing == "cutmix" else v2.MixUp
    mixed: tuple[Tensor, Tensor] = kind(num_classes=n_classes, alpha=MIXING_ALPHA)(images, labels)
    return mixed


def to_device(drawn: Tensor, device: torch.device) -> Tensor:
    """Return what a generator of the host drew, on `device`; on a GPU without waiting for the work before it."""
    if device.type != "cuda":
        return drawn.to(device)
    return drawn.pin_memory().to(device, non_blocking=True)


def _shifted(images: Tensor, generator: torch.Generator, *, padding: int) -> Tensor:
    n, _, height, width = images.shape
    padded = functional.pad(images, (padding, padding, padding, padding))
    offsets = torch.randint(0, 2 * padding + 1, (2, n), generator=generator)
    offsets = to_device(offsets, images.device)
    rows = offsets[0, :, None] + torch.arange(height, device=images.device)
    columns = offsets[1, :, None] + torch.arange(width, device=images.device)
    item = torch.arange(n, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[item, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
