"""The common frame of the trajectories: a small network, three sets of images and the order of their batches."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

WEIGHTS = ("conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias", "fc.weight", "fc.bias")
STATISTICS = ("bn1.running_mean", "bn1.running_var", "bn2.running_mean", "bn2.running_var")
BATCHES = {"retain": 32, "forget": 16, "val": 16}


class Net(nn.Module):
    """Two convolutions, each with BatchNorm, and a linear layer."""

    def __init__(self, n_channels: int, widths: tuple[int, int], n_features: int, n_classes: int) -> None:
        super().__init__()
        self.sizes = (n_channels, widths, n_features, n_classes)
        self.conv1 = nn.Conv2d(n_channels, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.conv2 = nn.Conv2d(widths[0], widths[1], 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(widths[1])
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(n_features, n_classes)

    def another(self) -> "Net":
        """Return a network of the same sizes with weights drawn now."""
        return Net(*self.sizes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.pool(self.relu(self.bn1(self.conv1(images))))
        hidden = self.pool(self.relu(self.bn2(self.conv2(hidden))))
        return self.fc(hidden.flatten(1))


class Examples(Dataset[dict[str, Any]]):
    """Samples as a submission is given them."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.images[index], "label": self.labels[index], "image_id": index}


class Frame:
    """The network's weights, the images and their splits, by the names that `frame.npz` has."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    @classmethod
    def read(cls, path: Path) -> "Frame":
        return cls(dict(np.load(path)))

    def network(self) -> Net:
        """Return the network with its original weights, in float64."""
        state = {name.removeprefix("original/"): torch.tensor(value) for name, value in self.arrays.items()
                 if name.startswith("original/")}  # fmt: skip
        state.setdefault("bn2.num_batches_tracked", state["bn1.num_batches_tracked"])
        classes, features = state["fc.weight"].shape
        widths = (len(state["conv1.weight"]), len(state["conv2.weight"]))
        net = Net(state["conv1.weight"].shape[1], widths, features, classes).double()
        net.load_state_dict(state)
        return net

    def examples(self, part: str, split: str) -> Examples:
        """Return the images of a part ("retain", "forget", "val") of a split ("random", "class"), in float64."""
        if part == "val":
            images, labels = self.arrays["val_images"], self.arrays["val_labels"]
        else:
            chosen = self.arrays[f"{split}_{part}"]
            images, labels = self.arrays["train_images"][chosen], self.arrays["train_labels"][chosen]
        return Examples(torch.tensor(images.astype(np.float64)), torch.tensor(labels.astype(np.int64)))

    def loaders(self, split: str, sizes: dict[str, int]) -> tuple[DataLoader[Any], ...]:
        """Return the loaders of retain, forget and validation set; nothing is shuffled. sizes: other batch sizes."""
        return tuple(
            DataLoader(self.examples(part, split), batch_size=sizes.get(part, size)) for part, size in BATCHES.items()
        )


def flat(net: nn.Module) -> tuple[np.ndarray, np.ndarray]:
    """Return all weights and all running statistics of the network, one vector each."""
    state = net.state_dict()
    weights = [state[name].detach().double().numpy().ravel() for name in WEIGHTS]
    return np.concatenate(weights), np.concatenate([state[name].double().numpy().ravel() for name in STATISTICS])
