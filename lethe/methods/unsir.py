"""UNSIR: learn noise that a class's loss is worst on, train on it as that class, then repair.

For each class of the forget set, images of noise are optimised to maximise the network's loss for that class. One pass
over the retain set shuffled together with COPIES of this noise, labelled with the class, impairs what the network knows
of it; a second pass over the retain set alone repairs the rest. Made for the removal of a class; no forget image is
shown.

Pseudo-code:
    z = N(0, 1), PER_CLASS images a class of the forget set; NOISE_STEPS times Adam on -ce(net(m + s z), c) + 0.1 |z|^2
    one pass over the retain set and COPIES of the noise, shuffled: step Adam(IMPAIR_LR) on ce
    one pass over the retain set: step Adam(LR) on ce

Source: Tarun et al. 2023 (UNSIR): learning rates 0.1 (noise), 0.02 (impair), 0.01 (repair).
Budget: 2 epochs over the retain set, COPIES over the noise and NOISE_STEPS over it.
Measured: the time of 8.51 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper uses a subset of the retain set and noise in the inputs' values; here the whole set, and noise
    in standard deviations around the mean pixel, as the inputs' scale is free (UNITS). The program takes only as many
    noise images as an image has channels (USED), trains them in the mode that the network is handed over in (MODE) and
    leaves their gradients to the first step (LEFTOVER).
Needs: forget labels
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import batches, step, train

NOISE_LR = 0.1  # lethe: tune NOISE_LR = log(1e-2, 1)
NOISE_STEPS = 40  # lethe: tune NOISE_STEPS = int(5, 250)
PER_CLASS = 8  # lethe: tune PER_CLASS = int(1, 64)
USED = 0  # of the noise images of a class; 0: all
COPIES = 10  # lethe: tune COPIES = int(1, 80)
IMPAIR_LR = 0.02  # lethe: tune IMPAIR_LR = log(1e-5, 1e-1)
LR = 0.01  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)
UNITS = "deviations"  # lethe: tune UNITS = choice("deviations", "values")
MODE = "eval"  # of the network while the noise is trained  # lethe: tune MODE = choice("eval", "train")
LEFTOVER = False  # True: the first step takes the gradients of the noise's training too
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
PRESETS = {
    "bad-teaching": {
        "NOISE_STEPS": 250,
        "PER_CLASS": 64,
        "USED": 3,
        "COPIES": 80,
        "IMPAIR_LR": 1e-4,
        "LR": 1e-4,
        "UNITS": "values",
        "MODE": "train",
        "LEFTOVER": True,
    },
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    erase(net, retain_loader, forget_loader, val_loader, state)
    repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    classes = torch.cat([labels for _, labels in batches(forget_loader, net)]).unique()
    example = next(images for images, _ in batches(retain_loader, net))
    labels = classes.repeat_interleave(PER_CLASS)
    noise = worst_noise(net, example, labels)
    used = torch.arange(PER_CLASS)[: USED or PER_CLASS]
    chosen = (torch.arange(len(classes))[:, None] * PER_CLASS + used).flatten().repeat(COPIES)
    optimizer = torch.optim.Adam(net.parameters(), lr=IMPAIR_LR)
    if not LEFTOVER:
        net.zero_grad()
    net.train()
    for images, targets in with_noise(retain_loader, noise[chosen], labels[chosen]):
        functional.cross_entropy(net(images), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


def worst_noise(net: nn.Module, example: Tensor, labels: Tensor) -> Tensor:
    """Return one image a label, of the example's mean and scale, on which the network's loss for it is large."""
    net.train(MODE == "train")
    mean, scale = (0.0, 1.0) if UNITS == "values" else (example.mean(), example.std())
    seeds = first_noise(labels, example)
    optimizer = torch.optim.Adam([seeds], lr=NOISE_LR)
    for _ in range(NOISE_STEPS):
        logits = net(mean + scale * seeds)
        penalty = 0.1 * seeds.square().flatten(1).sum(1).mean()
        step(optimizer, -functional.cross_entropy(logits, labels) + penalty)
    return (mean + scale * seeds).detach()


def first_noise(labels: Tensor, example: Tensor) -> Tensor:
    return torch.randn(len(labels), *example.shape[1:], dtype=example.dtype, device=example.device, requires_grad=True)


def with_noise(retain_loader: Any, noise: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of the noise and the retain set, shuffled together."""
    retain = retain_loader.dataset
    for part in torch.randperm(len(noise) + len(retain)).split(retain_loader.batch_size):
        if len(part) == 1:
            continue  # BatchNorm cannot train on a batch of one
        samples = [retain[index - len(noise)] for index in part[part >= len(noise)].tolist()]
        images = [noise[part[part < len(noise)]], *(sample["image"][None].to(noise.device) for sample in samples)]
        targets = torch.tensor([int(sample["label"]) for sample in samples], device=labels.device, dtype=labels.dtype)
        yield torch.cat(images), torch.cat([labels[part[part < len(noise)]], targets])


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    train(net, retain, torch.optim.Adam(net.parameters(), lr=lr), [lr] * epochs)
