"""DUCK: pull the features of forget images to the nearest centroid of another class.

The mean feature vector of each class is computed on the retain set by the original network. Each forget image's
features, what the last layer is given, are pulled by cosine distance towards the nearest centroid of a wrong class,
while retain batches hold the classifier. Training stops once the forget accuracy is down to that on the validation set.

Pseudo-code:
    m[c] = mean features of retain class c
    EPOCHS times: for each forget batch (xf, yf), with the next RETAIN_BATCHES retain batches (x, y) each:
        c = nearest m by cosine among classes other than yf
        step Adam on FORGET_WEIGHT * mean(1 - cos(features(xf), m[c])) + RETAIN_WEIGHT * ce(net(x) / T, y)
        after each epoch: stop if accuracy(forget) <= accuracy(validation)

Source: Cotogni et al. 2023 (DUCK), section 3: both weights 1.5, Adam 5e-4, T 2.
Budget: 2 * EPOCHS * RETAIN_BATCHES * |S| / |R| epochs over the retain set at most, and one for the centroids.
Measured: the time of 11.30 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper stops within an epoch and has one target accuracy a scenario; here the target is the validation
    accuracy, its scenario of homogeneous removal.
Needs: forget images, forget labels, validation
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

LR = 5e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
RETAIN_BATCHES = 5  # lethe: tune RETAIN_BATCHES = int(1, 10)
FORGET_WEIGHT = 1.5  # lethe: tune FORGET_WEIGHT = log(0.1, 10)
RETAIN_WEIGHT = 1.5  # lethe: tune RETAIN_WEIGHT = log(0.1, 10)
T = 2.0  # lethe: tune T = uniform(0.5, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    with ClassifierInputs(net) as features:
        centres = centroids(net, retain_loader, features)
        for _ in range(EPOCHS):
            net.train()
            one_epoch(net, retain_loader, forget_loader, features, centres, optimizer)
            if accuracy(net, forget_loader) <= accuracy(net, val_loader):
                break
    net.eval()


def one_epoch(
    net: nn.Module,
    retain_loader: Any,
    forget_loader: Any,
    features: "ClassifierInputs",
    centres: Tensor,
    optimizer: torch.optim.Optimizer,
) -> None:
    retain_batches = cycle(retain_loader, net)
    for forget_images, forget_labels in batches(forget_loader, net):
        for _ in range(RETAIN_BATCHES):
            images, labels = next(retain_batches)
            kept = functional.cross_entropy(net(images) / T, labels)
            net(forget_images)
            pulled = distance_to_wrong(features.values, forget_labels, centres)
            step(optimizer, FORGET_WEIGHT * pulled + RETAIN_WEIGHT * kept)


@torch.no_grad()
def centroids(net: nn.Module, loader: Any, features: "ClassifierInputs") -> Tensor:
    """Return the mean features of each class that the loader holds, zeros for others: [C, features]."""
    net.eval()
    sums, counts = torch.empty(0), torch.empty(0)
    for images, labels in batches(loader, net):
        n_classes = net(images).shape[1]
        if not len(sums):
            sums = images.new_zeros(n_classes, features.values.shape[1])
            counts = images.new_zeros(n_classes)
        sums.index_add_(0, labels, features.values)
        counts.index_add_(0, labels, torch.ones_like(labels, dtype=counts.dtype))
    return sums / counts.clamp(min=1)[:, None]


def distance_to_wrong(features: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """Return the mean cosine distance to the nearest centroid of a wrong class. features: [n, d]; centres: [C, d]."""
    distances = 1 - functional.cosine_similarity(features[:, None], centres[None], dim=2)
    return distances.scatter(1, labels[:, None], math.inf).amin(1).mean()


class ClassifierInputs:
    """Inside `with`, `values` is what the last weight layer was given by the latest forward pass: [n, features]."""

    def __init__(self, net: nn.Module) -> None:
        self.layer = weight_layers(net)[-1]
        self.values = torch.empty(0)

    def __enter__(self) -> "ClassifierInputs":
        self.hook = self.layer.register_forward_pre_hook(self.keep)
        return self

    def __exit__(self, *error: object) -> None:
        self.hook.remove()

    def keep(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.values = inputs[0].flatten(1)


def batches(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, labels) of one pass on the network's device; BatchNorm cannot train on a batch of one."""
    device = next(net.parameters()).device
    skips_single = net.training and any(isinstance(module, _BatchNorm) for module in net.modules())
    for sample in loader:
        if not (skips_single and len(sample["image"]) == 1):
            yield sample["image"].to(device), sample["label"].to(device)


def cycle(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches without end, one pass after another."""
    while True:
        n_batches = 0
        for batch in batches(loader, net):
            n_batches += 1
            yield batch
        if not n_batches:
            raise ValueError("the set is too small: it has no batch that the network can be trained on")


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def weight_layers(net: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    return [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


@torch.no_grad()
def accuracy(net: nn.Module, loader: Any) -> float:
    net.eval()
    hits = [net(images).argmax(1) == labels for images, labels in batches(loader, net)]
    return float(torch.cat(hits).float().mean()) if hits else 0.0
