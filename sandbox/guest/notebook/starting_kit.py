"""What the hosts' starting kit downloads, given from the competition's own data: CIFAR10, index files, weights.

Its train set is the retain and the forget set, one after the other. Its held-out set is made of the validation set and
twice as long as the forget set, because the kit compares one half of it with the forget set, example by example.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torchvision

from lethe.runtime.data_loaders import GuestData

WEIGHTS = "weights_resnet18_cifar10.pth"
INDICES = ("forget_idx.npy", "retain_idx.npy")
DATASET = "CIFAR10"
SHAPE, MAX_CLASSES = (3, 32, 32), 10


def offer_starting_kit(texts: Sequence[bytes], data: GuestData, *, tell: Callable[[str], None]) -> None:
    """Put what a program names of the kit's files into the current folder; CIFAR10 becomes the competition's data."""
    named = {name for name in (WEIGHTS, *INDICES, DATASET) if any(name.encode() in text for text in texts)}
    if not named or not _is_alike(data):
        return
    n_retain, n_forget = len(data.retain), len(data.forget)
    if WEIGHTS in named:
        original = next(Path("/kaggle/input").glob("*/original_model.pth"), None)
        if original is not None:
            Path(WEIGHTS).symlink_to(original)
    for name, first, count in zip(INDICES, (n_retain, 0), (n_forget, n_retain), strict=True):
        if name in named:
            importlib.import_module("numpy").save(name, torch.arange(first, first + count).numpy())
    if DATASET in named:
        _replace_dataset(data)
    tell(f"[lethe] {', '.join(sorted(named))}: given from this competition's data")


def _is_alike(data: GuestData) -> bool:
    shape, n_classes = data.network.get("input_shape"), data.network.get("n_classes")
    return shape == list(SHAPE) and isinstance(n_classes, int) and n_classes <= MAX_CLASSES


def _replace_dataset(data: GuestData) -> None:
    kind: Any = torchvision.datasets.CIFAR10

    def make(
        self: Any, root: Any = "", train: bool = True, transform: Any = None, target_transform: Any = None, **_rest: Any
    ) -> None:
        torchvision.datasets.VisionDataset.__init__(self, root, transform=transform, target_transform=target_transform)
        sets = [data.retain.stored, data.forget.stored] if train else [data.validation.stored]
        n = sum(len(part.labels) for part in sets)
        index = torch.arange(n if train else 2 * len(data.forget)) % n
        self.train = train
        self.data = torch.cat([part.images for part in sets])[index].permute(0, 2, 3, 1).contiguous().numpy()
        self.targets = torch.cat([part.labels for part in sets])[index].tolist()
        self.classes = [str(number) for number in range(data.network["n_classes"])]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    kind.__init__ = make
