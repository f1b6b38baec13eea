"""Time of every method over one epoch of finetuning, on sklearn's digits with the small convolutional network.

Time is the process's CPU time, which other programs hardly change. Each round measures the epoch, then every method.
"""

import copy
import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from lethe.methods.common import train
from lethe.networks.builders import build
from lethe.runtime.data_loaders import ImageSet, InMemoryDataset, ShuffledLoader

NETWORK: Mapping[str, Any] = {
    "name": "small_cnn",
    "input_shape": [1, 8, 8],
    "n_classes": 10,
    "input_scale": 1 / 128,
    "input_shift": -1.0,
}
SIZES = {"retain": 700, "forget": 100, "validation": 200}
EPOCHS = 20  # of the original network, as of the digits competition
ROUNDS = 5

Loaders = tuple[ShuffledLoader, ShuffledLoader, ShuffledLoader]


def digits() -> Loaders:
    """Return loaders of retain, forget and validation set, drawn without overlap."""
    data = load_digits()
    images = torch.from_numpy(data.images * 255 / 16).to(torch.uint8)[:, None]
    labels, order = torch.from_numpy(data.target).long(), torch.randperm(len(data.target))
    parts = order[: sum(SIZES.values())].split(list(SIZES.values()))  # type: ignore[no-untyped-call]
    retain, forget, validation = (loader(images[part], labels[part]) for part in parts)
    return retain, forget, validation


def loader(images: Tensor, labels: Tensor) -> ShuffledLoader:
    numbers = torch.arange(len(labels))
    return ShuffledLoader(InMemoryDataset(ImageSet(images, labels, numbers, numbers), NETWORK), 64)


def original_network(loaders: Loaders) -> nn.Module:
    net = build(NETWORK)
    for _ in range(EPOCHS):
        for part in loaders[:2]:
            train(net, part, sgd(net), [0.05])
    return net


def measured_ratios(net: nn.Module, loaders: Loaders, methods: list[str], *, rounds: int) -> dict[str, list[float]]:
    """Return for each method its time over that of an epoch, one value a round."""
    found: dict[str, list[float]] = {method_id: [] for method_id in methods}
    for _ in range(rounds + 1):
        epoch_s = min(measure_time(one_epoch, net, loaders) for _ in range(3))
        for method_id in methods:
            unlearning = importlib.import_module(f"lethe.methods.{method_id}").unlearning
            found[method_id].append(measure_time(unlearning, net, loaders) / epoch_s)
    return {method_id: values[1:] for method_id, values in found.items()}  # the first round loads code


def one_epoch(net: nn.Module, retain: ShuffledLoader, *_: ShuffledLoader) -> None:
    train(net, retain, sgd(net), [1e-3])


def sgd(net: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)


def measure_time(unlearning: Callable[..., Any], net: nn.Module, loaders: Loaders) -> float:
    fresh = copy.deepcopy(net)
    started = time.process_time()
    unlearning(fresh, *loaders)
    return time.process_time() - started
