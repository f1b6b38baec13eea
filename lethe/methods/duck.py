"""DUCK: pull the features of forget images to the nearest centroid of another class.

The mean feature vector of each class is computed on the retain set by the original network. Each forget image's
features, what the last layer is given, are pulled by cosine distance towards the nearest centroid of a wrong class,
while retain batches hold the classifier. Training stops once the forget accuracy is below TARGET; a second phase with
large batches may follow.

Pseudo-code:
    m[c] = mean features of retain class c, over the first CENTRE_BATCHES batches
    EPOCHS times: for each forget batch (xf, yf), with the first RETAIN_BATCHES batches (x, y) of a pass each:
        c = nearest m by cosine among classes other than yf
        step Adam on FORGET_WEIGHT * mean(1 - cos(features(xf), m[c])) + RETAIN_WEIGHT * ce(net(x) / T, y)
        after each epoch: stop if accuracy(forget) is below TARGET, or not above accuracy(validation) where that is 0
    with SECOND_PHASE: two epochs of Adam with FORGET_WEIGHT / 10 and RETAIN_WEIGHT 1, both sets in one batch

Source: Cotogni et al. 2023 (DUCK), section 3: both weights 1.5, Adam 5e-4, T 2.
Budget: 2 * EPOCHS * RETAIN_BATCHES * |S| / |R| epochs over the retain set at most, and one for the centroids.
Measured: the time of 10.29 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper stops within an epoch and has one target accuracy a scenario. The program keeps the centroids
    of the first epoch in a list that it reads by the forget batch though it has an entry for each retain batch too, and
    runs one retain batch more without a step (AS_PUBLISHED); it always adds a second phase.
Needs: forget images, forget labels, validation
"""

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from lethe.methods.common import accuracy, batches, set_lr, step, weight_layers

LR = 5e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
RETAIN_BATCHES = 5  # lethe: tune RETAIN_BATCHES = int(1, 10)
FORGET_WEIGHT = 1.5  # lethe: tune FORGET_WEIGHT = log(0.1, 10)
RETAIN_WEIGHT = 1.5  # lethe: tune RETAIN_WEIGHT = log(0.1, 10)
T = 2.0  # lethe: tune T = uniform(0.5, 5)
TARGET = 0.0  # forget accuracy below which training stops; 0: that on the validation set
CENTRE_BATCHES = 50  # of the retain set, from which the centroids are computed
AS_PUBLISHED = False  # True: the centroids of later epochs are read from a list as in the program
SECOND_PHASE = False  # lethe: tune SECOND_PHASE = choice(False, True)
SECOND_LR = 1e-4
SECOND_BATCH = 512  # retain images of a batch in the second phase
SECOND_BATCHES = 20  # retain batches for each forget batch in it
PRESETS = {
    "program": {"RETAIN_BATCHES": 6, "TARGET": 0.01, "AS_PUBLISHED": True, "SECOND_PHASE": True},
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    with ClassifierInputs(net) as features:
        targets = Targets(centroids(net, retain_loader, features))
        for epoch in range(EPOCHS):
            set_lr(optimizer, LR * 0.5 ** sum(epoch >= at for at in (25, 40)))
            net.train()
            one_epoch(net, retain_loader, forget_loader, features, targets, optimizer)
            targets.first_epoch = False
            reached = accuracy(net, forget_loader)
            if (reached <= accuracy(net, val_loader)) if TARGET == 0 else (reached < TARGET):
                break
        if SECOND_PHASE:
            second_phase(net, retain_loader, forget_loader, features, targets)
    net.eval()


def one_epoch(
    net: nn.Module,
    retain_loader: Any,
    forget_loader: Any,
    features: "ClassifierInputs",
    targets: "Targets",
    optimizer: torch.optim.Optimizer,
) -> None:
    for n_forget, (forget_images, forget_labels) in enumerate(batches(forget_loader, net)):
        for n_retain, (images, labels) in enumerate(batches(retain_loader, net)):
            if n_retain >= RETAIN_BATCHES and not AS_PUBLISHED:
                break
            net(forget_images)
            pulled = targets.distance(features.values, forget_labels, place=n_forget, fresh=targets.first_epoch)
            logits = net(images)
            if n_retain >= RETAIN_BATCHES:
                break
            kept = functional.cross_entropy(logits / T, labels)
            step(optimizer, FORGET_WEIGHT * pulled + RETAIN_WEIGHT * kept)


def second_phase(
    net: nn.Module, retain_loader: Any, forget_loader: Any, features: "ClassifierInputs", targets: "Targets"
) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=SECOND_LR)
    size = min(SECOND_BATCH, len(retain_loader.dataset))
    loader = DataLoader(retain_loader.dataset, batch_size=size, shuffle=True, drop_last=True)
    total, done = 2 * SECOND_BATCHES * len(forget_loader), 0
    net.train()
    for _ in range(2):
        for n_forget, (forget_images, forget_labels) in enumerate(batches(forget_loader, net)):
            pulled_images, pulled_labels = forget_images[:128], forget_labels[:128]
            for n_retain, (images, labels) in enumerate(batches(loader, net)):
                if n_retain >= SECOND_BATCHES:
                    break
                set_lr(optimizer, SECOND_LR * (1 + math.cos(math.pi * done / total)) / 2)
                logits = net(torch.cat([pulled_images, images]))[len(pulled_images) :]
                values = features.values[: len(pulled_images)]
                pulled = targets.distance(values, pulled_labels, place=n_forget, fresh=n_retain == 0)
                step(optimizer, functional.cross_entropy(logits / T, labels) + FORGET_WEIGHT / 10 * pulled)
                done += 1


@torch.no_grad()
def centroids(net: nn.Module, loader: Any, features: "ClassifierInputs") -> Tensor:
    """Return the mean features of each class of the loader's first batches, NaN for others: [C, features]."""
    net.eval()
    sums, counts = torch.empty(0), torch.empty(0)
    for images, labels in itertools.islice(batches(loader, net), CENTRE_BATCHES):
        n_classes = net(images).shape[1]
        if not len(sums):
            sums = images.new_zeros(n_classes, features.values.shape[1])
            counts = images.new_zeros(n_classes)
        sums.index_add_(0, labels, features.values)
        counts.index_add_(0, labels, torch.ones_like(labels, dtype=counts.dtype))
    return sums / counts[:, None]


class Targets:
    """The centroids, and which of them each forget image is pulled to."""

    def __init__(self, centres: Tensor) -> None:
        self.centres = centres
        self.first_epoch = True
        self.kept: list[Tensor] = []

    def distance(self, features: Tensor, labels: Tensor, *, place: int, fresh: bool) -> Tensor:
        """Return the mean cosine distance to the target centroids. features: [n, d].

        fresh: the nearest ones, kept in a list; otherwise as AS_PUBLISHED says, the list's entry of this place.
        """
        distances = distances_to(features, self.centres)
        nearest = distances.detach().scatter(1, labels[:, None], math.inf).argmin(1)
        if AS_PUBLISHED and fresh:
            self.kept.append(nearest)
        elif AS_PUBLISHED:
            nearest = self.kept[place][: len(features)]
        return distances.gather(1, nearest[:, None]).mean()


def distances_to(features: Tensor, centres: Tensor) -> Tensor:
    """Return the cosine distances of features [n, d] and centres [C, d], infinity for missing ones: [n, C]."""
    distances = 1 - functional.cosine_similarity(features[:, None], centres.nan_to_num()[None], dim=2)
    return torch.where(centres.isnan().any(1)[None], math.inf, distances)


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
