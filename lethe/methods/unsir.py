"""UNSIR: learn noise that a class's loss is worst on, train on it as that class, then repair.

For each class of the forget set, images of noise are optimised to maximise the network's loss for that class. One pass
over the retain set mixed with this noise, labelled with the class, impairs what the network knows of it; a second pass
over the retain set alone repairs the rest. Made for the removal of a class; no forget image is shown.

Pseudo-code:
    z = N(0, 1), PER_CLASS images a class of the forget set; NOISE_STEPS times Adam on -ce(net(m + s z), c) + 0.1 |z|^2
    one pass over the retain set, each batch joined by noise: step Adam(IMPAIR_LR) on ce
    one pass over the retain set: step Adam(LR) on ce

Source: Tarun et al. 2023 (UNSIR): learning rates 0.1 (noise), 0.02 (impair), 0.01 (repair).
Budget: 2.1 epochs over the retain set and NOISE_STEPS passes over the noise.
Measured: the time of 7.89 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper uses a subset of the retain set and noise in pixel values; here the whole set, and noise in
    standard deviations around the mean pixel, as the inputs' scale is free. Its own learning rates are for Adam on
    large networks.
Needs: forget labels
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

NOISE_LR = 0.1  # lethe: tune NOISE_LR = log(1e-2, 1)
NOISE_STEPS = 40  # lethe: tune NOISE_STEPS = int(5, 100)
PER_CLASS = 8  # lethe: tune PER_CLASS = int(1, 64)
IMPAIR_LR = 0.02  # lethe: tune IMPAIR_LR = log(1e-5, 1e-1)
LR = 0.01  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 5)
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    erase(net, retain_loader, forget_loader, val_loader, state)
    repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    classes = torch.cat([labels for _, labels in batches(forget_loader, net)]).unique()
    example = next(images for images, _ in batches(retain_loader, net))
    noise_labels = classes.repeat_interleave(PER_CLASS)
    noise = worst_noise(net, example, noise_labels)
    optimizer = torch.optim.Adam(net.parameters(), lr=IMPAIR_LR)
    net.train()
    for images, labels in batches(retain_loader, net):
        logits = net(torch.cat([images, noise]))
        step(optimizer, functional.cross_entropy(logits, torch.cat([labels, noise_labels])))


def worst_noise(net: nn.Module, example: Tensor, labels: Tensor) -> Tensor:
    """Return one image a label, of the example's mean and scale, on which the network's loss for it is large."""
    net.eval()
    seeds = torch.randn(len(labels), *example.shape[1:], device=example.device, requires_grad=True)
    optimizer = torch.optim.Adam([seeds], lr=NOISE_LR)
    for _ in range(NOISE_STEPS):
        logits = net(example.mean() + example.std() * seeds)
        step(optimizer, -functional.cross_entropy(logits, labels) + 0.1 * seeds.square().mean())
    net.zero_grad()
    return (example.mean() + example.std() * seeds).detach()


def repair(
    net: nn.Module,
    retain_loader: Any,
    forget_loader: Any,
    val_loader: Any,
    state: dict[str, Any],
    epochs: int,
    lr: float,
) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    net.train()
    for _ in range(epochs):
        for images, labels in batches(retain_loader, net):
            step(optimizer, functional.cross_entropy(net(images), labels))


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
