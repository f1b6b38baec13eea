"""Scanned digits, and original, retrained and unlearned models of them, for tables that make models of their own.

Digits come with scikit-learn; noise gives a network something to memorise. Models are small, so that a table of
hundreds of them takes minutes of one processor.
"""

import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit
from torch import Tensor, nn

from lethe.competition.file import Training
from lethe.data.datasets.digits import open_digits
from lethe.methods.rendering import render
from lethe.networks.builders import build, to_inputs
from lethe.runtime.data_loaders import GuestData, ImageSet, InMemoryDataset, make_loaders
from lethe.training.stacked_training import can_stack, train_stacked
from lethe.training.trainer import TrainingJob, train_model
from lethe.tuning.split_run import Unlearning, load_method

Rows = NDArray[np.int64]
State = dict[str, Tensor]
RECIPE = Training(epochs=20, batch_size=64, learning_rate=0.1, momentum=0.9)


@dataclass(frozen=True)
class DigitModels:
    """images: uint8 [n, 1, 8, 8]. labels: int64 [n], those that training uses. network, recipe: of every model."""

    images: Tensor
    labels: Tensor
    network: Mapping[str, Any]
    recipe: Training

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any], *, noise: float, recipe: Training = RECIPE) -> Self:
        """Return the digits with this noise, for a network of this name and with these options."""
        digits = open_digits({"noise": noise, "seed": 7})
        network = {
            "name": name,
            "options": dict(options),
            "input_shape": list(digits.images.shape[1:]),
            "n_classes": digits.n_classes,
            "input_scale": digits.input_scale,
            "input_shift": digits.input_shift,
        }
        return cls(torch.from_numpy(digits.images), torch.from_numpy(digits.labels), network, recipe)

    def with_labels(self, labels: Tensor) -> Self:
        """Return the same images with other labels to train on."""
        return replace(self, labels=labels)

    def network_of(self, state: State) -> nn.Module:
        """Return the network with these weights, in evaluation mode."""
        net = build(self.network)
        net.load_state_dict(state)
        return net.eval()

    def inputs(self, rows: Rows) -> Tensor:
        """Return the network's inputs of these images."""
        return to_inputs(self.images[rows], self.network)

    def trained(self, rows: Rows, seeds: Sequence[int]) -> list[State]:
        """Return a model of each seed, trained on these images."""
        job = TrainingJob.on_device(self.network, self.recipe, self.images[rows], self.labels[rows], device="cpu")
        if len(seeds) == 1 or not can_stack(job):
            return [train_model(job, seed) for seed in seeds]
        stacked = train_stacked(job, seeds)
        return [{name: tensor[i].clone() for name, tensor in stacked.items()} for i in range(len(seeds))]

    def guest_data(self, original: State, *, retain: Rows, forget: Rows, validation: Rows) -> GuestData:
        """Return what an unlearning method is given."""
        trained = self.labels[np.concatenate([retain, forget])]
        counts = {str(label): int((trained == label).sum()) for label in range(self.network["n_classes"])}
        return GuestData(
            network=self.network,
            original_state=original,
            retain=self._dataset(retain),
            forget=self._dataset(forget),
            validation=self._dataset(validation),
            class_counts=counts,
        )

    def _dataset(self, rows: Rows) -> InMemoryDataset:
        numbers = torch.from_numpy(rows)
        images = ImageSet(self.images[rows], self.labels[rows], ids=numbers, persons=numbers)
        return InMemoryDataset(images, self.network)

    @torch.inference_mode()
    def logits(self, state: State, rows: Rows) -> NDArray[np.float32]:
        """Return the outputs of a model, shape (n_rows, n_classes)."""
        return np.asarray(self.network_of(state)(self.inputs(rows)).numpy())


def catalogue_method(method: str, constants: Mapping[str, Any]) -> Unlearning:
    """Return the function of a method of the catalogue with these constants."""
    with tempfile.TemporaryDirectory(prefix="lethe-method-") as folder:
        path = Path(folder) / "unlearning.py"
        path.write_text(render(method, constants), encoding="utf-8")
        return load_method(path)


def unlearned(unlearning: Unlearning, data: GuestData, *, seed: int) -> State:
    """Return the weights after one run from the original model."""
    net = build(data.network)
    net.load_state_dict(deepcopy(data.original_state))
    net.train()
    torch.manual_seed(seed)
    loaders = make_loaders(data)
    unlearning(net, loaders.retain, loaders.forget, loaders.validation)
    return {name: tensor.detach() for name, tensor in net.state_dict().items()}


def mean_and_error(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and the half width of its 95 % interval, by Student's t; of one value the width is NaN."""
    known = np.asarray(values, np.float64)
    if len(known) < 2:
        return float(known.mean()), float("nan")
    quantile = float(stdtrit(len(known) - 1, 0.975))
    return float(known.mean()), quantile * float(known.std(ddof=1)) / len(known) ** 0.5
