"""Tiny data and networks for the methods: four classes of 8x8 pictures, each a pattern with noise."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.networks.builders import build
from lethe.runtime.data_loaders import ImageSet, InMemoryDataset, ShuffledLoader

N_CLASSES, SIDE = 4, 8
SIZES = {"retain": 96, "forget": 24, "validation": 48}
SMALL = {"retain": 25, "forget": 9, "validation": 9}  # with batches of 8 each set ends in a batch of one
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "options": {"hidden": [48]}},
    "small_cnn": {"name": "small_cnn", "options": {"widths": [4, 8]}},
    "resnet20": {"name": "resnet20"},
    "resnet18": {"name": "resnet18", "options": {"stem": "small"}},
    "all_cnn": {"name": "all_cnn", "options": {"width": 4}},
    "vit": {"name": "vit", "options": {"width": 12, "depth": 2, "heads": 3}},
}


@dataclass(frozen=True)
class Problem:
    """What a method is called with, and the weights that the network had."""

    net: nn.Module
    retain: ShuffledLoader
    forget: ShuffledLoader
    validation: ShuffledLoader
    before: Mapping[str, Tensor]

    @property
    def data(self) -> tuple[ShuffledLoader, ShuffledLoader, ShuffledLoader]:
        return self.retain, self.forget, self.validation


def network_description(kind: str) -> dict[str, Any]:
    channels = 3 if kind == "resnet18" else 1
    shape = [channels, SIDE, SIDE]
    return {**NETWORKS[kind], "input_shape": shape, "n_classes": N_CLASSES, "input_scale": 1 / 128, "input_shift": -1.0}


def make_problem(
    kind: str,
    *,
    sizes: Mapping[str, int] = SIZES,
    epochs: int = 0,
    lr: float = 0.003,
    seed: int = 0,
    batch_size: int = 16,
) -> Problem:
    """Return a network of this kind, trained for some epochs on retain and forget set, and its data."""
    description = network_description(kind)
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randint(98, 158, (N_CLASSES, *description["input_shape"]), generator=generator)
    loaders = {
        name: ShuffledLoader(draw_set(patterns, size, generator, description), batch_size)
        for name, size in sizes.items()
    }
    torch.manual_seed(seed)
    net = build(description)
    if epochs:
        train(net, [loaders["retain"], loaders["forget"]], epochs, lr)
    net.train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    return Problem(net, loaders["retain"], loaders["forget"], loaders["validation"], before)


def run_method(method_id: str, kind: str, *, seed: int = 0, epochs: int = 0) -> Problem:
    """Return a small problem after a method ran on its network."""
    problem = make_problem(kind, sizes=SMALL, batch_size=8, epochs=epochs)
    torch.manual_seed(seed)
    importlib.import_module(f"lethe.methods.{method_id}").unlearning(problem.net, *problem.data)
    return problem


def draw_set(
    patterns: Tensor, size: int, generator: torch.Generator, description: Mapping[str, Any]
) -> InMemoryDataset:
    """Return `size` noisy pictures; the first class is the largest."""
    labels = torch.randint(0, N_CLASSES + 2, (size,), generator=generator) % (N_CLASSES + 1) % N_CLASSES
    noise = torch.randint(-98, 99, (size, *patterns.shape[1:]), generator=generator)
    images = (patterns[labels] + noise).clamp(0, 255).to(torch.uint8)
    stored = ImageSet(images, labels, torch.arange(size), torch.arange(size))
    return InMemoryDataset(stored, description)


def train(net: nn.Module, loaders: list[ShuffledLoader], epochs: int, lr: float) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    net.train()
    for _ in range(epochs):
        for loader in loaders:
            for sample in loader:
                optimizer.zero_grad()
                functional.cross_entropy(net(sample["image"]), sample["age_group"]).backward()
                optimizer.step()


@torch.no_grad()
def outputs(net: nn.Module, loader: ShuffledLoader) -> tuple[Tensor, Tensor]:
    """Return logits [n, C] and labels [n] in stored order, in evaluation mode."""
    net.eval()
    dataset: InMemoryDataset = loader.dataset
    return net(dataset.inputs(slice(None))), dataset.stored.labels


def changed(problem: Problem) -> set[str]:
    """Return the names of the tensors that are not what they were."""
    state = problem.net.state_dict()
    return {name for name, tensor in problem.before.items() if not torch.equal(tensor, state[name])}


def set_all(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **values: object) -> None:
    for name, value in values.items():
        monkeypatch.setattr(module, name, value)
