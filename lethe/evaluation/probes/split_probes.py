"""The arrays of capture level 4: the probes on some unlearned models, and on the references that a split stores."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor, nn

from lethe.data.files import read_json
from lethe.data.stored_sets import SET_PATHS, StoredSet
from lethe.device.precision import device_arithmetic, one_thread, repeatable_attention, zero_for_denormals
from lethe.evaluation.inference import load_original
from lethe.evaluation.manifest import NETWORK_PATH, Manifest, require_whole
from lethe.evaluation.original_models import ORIGINAL
from lethe.evaluation.probes.perturbation import RADII, perturbed_accuracy
from lethe.evaluation.probes.relearn import mean_loss, relearn_epochs
from lethe.evaluation.probes.weights import weight_distances
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.networks.builders import build, to_inputs

VERSION = 1  # of the arrays: splits whose references older probes read are probed again when they are prepared
RELEARNING_SHARE = 0.1  # of the training's learning rate
FILES_READ = (NETWORK_PATH, ORIGINAL, SET_PATHS["forget"])
State = dict[str, Tensor]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class SplitProbes:
    """What the probes need of a split. images, labels: the forget set as the network's inputs, on its device."""

    network: nn.Module
    images: Tensor
    labels: Tensor
    original_loss: float
    learning_rate: float

    @classmethod
    def load(cls, split_dir: Path, *, device: str = "cpu") -> Self:
        """Return the probes of a prepared split of images.

        Raises InvalidMetricInput for a split of language models, DamagedSplit naming a file.
        """
        manifest = require_whole(split_dir, only=FILES_READ)
        if "task" in manifest.recipe:
            raise InvalidMetricInput(f"{split_dir} is of language models; the probes are for classifiers of images")
        return cls.read(split_dir, trained_at=float(manifest.recipe["training"]["learning_rate"]), device=device)

    @classmethod
    def read(cls, split_dir: Path, *, trained_at: float, device: str = "cpu") -> Self:
        """Return the probes from the files of a split. trained_at: the learning rate of the training."""
        network = read_json(split_dir / NETWORK_PATH)
        forget = StoredSet.read(split_dir / SET_PATHS["forget"])
        net = build(network)
        net.load_state_dict(load_original(split_dir))
        net, images = net.to(device), to_inputs(forget.images, network).to(device)
        labels = forget.labels.to(device)
        with _repeatable(images.device):
            original_loss = mean_loss(net, images, labels)
        return cls(net, images, labels, original_loss, RELEARNING_SHARE * trained_at)

    def arrays(
        self, models: Sequence[State], retrained: Sequence[State], *, on_model: Callable[[], None] = lambda: None
    ) -> Arrays:
        """Return `relearn_epochs` [k], `perturbed_accuracy` [k, D, S], `weight_distance` and `weight_norm` [k].

        models: k state dicts, or one that stands for as many as there are retrained ones (the original model), whose
        first two arrays are then of one model. retrained: state dicts, model i to compare model i with. on_model: told
        of each model that is probed.
        Raises InvalidMetricInput for other numbers of models, and for weights that are not finite.
        """
        with _repeatable(self.images.device):
            distances = weight_distances(self.network, models, retrained)
            epochs, accuracies = [], []
            for state in models:
                epochs.append(self._epochs(state))
                accuracies.append(self._accuracy(state))
                on_model()
        return {"relearn_epochs": np.array(epochs), "perturbed_accuracy": np.stack(accuracies)} | distances

    def _epochs(self, state: State) -> int:
        return relearn_epochs(
            self.network,
            state,
            self.images,
            self.labels,
            original_loss=self.original_loss,
            learning_rate=self.learning_rate,
        )

    def _accuracy(self, state: State) -> NDArray[np.float64]:
        scale = float(self.images.max() - self.images.min()) or 1.0
        return perturbed_accuracy(self.network, state, self.images, self.labels, input_scale=scale)


def probed_references(
    probes: SplitProbes,
    *,
    retrained: Sequence[State],
    oracle: Sequence[State],
    original: State,
    on_model: Callable[[], None] = lambda: None,
) -> dict[str, Arrays]:
    """Return the arrays of level 4 of the references by side, and of the split. on_model: told of each model."""
    sides = {"retrained": (retrained, retrained), "original": ([original], retrained)}
    if oracle:
        sides["oracle"] = oracle, retrained[: len(oracle)]
    found = {side: probes.arrays(*models, on_model=on_model) for side, models in sides.items()}
    return found | {"shared": {"perturbation_radii": np.array(RADII)}}


def probed_split(split_dir: Path, unlearned: Sequence[State]) -> dict[str, Arrays]:
    """Return the arrays of level 4 by side: of k unlearned models, and of up to k of each reference that is stored.

    Raises InvalidMetricInput if it stores no retrained models.
    """
    probes = SplitProbes.load(split_dir)
    retrained, oracle = (stored_models(split_dir, kind, len(unlearned)) for kind in ("retrained", "oracle"))
    if not retrained:
        raise InvalidMetricInput(
            f"{split_dir} stores no retrained models, only their outputs: prepare it again with `lethe prepare`"
        )
    found = probed_references(probes, retrained=retrained, oracle=oracle, original=load_original(split_dir))
    return found | {"unlearned": probes.arrays(unlearned[: len(retrained)], retrained)}


def stored_models(split_dir: Path, kind: str, n_models: int) -> list[State]:
    """Return the first models of a set whose weights the split stores, at most n_models; none if it stores none.

    Raises DamagedSplit if a file that is read is not what was prepared.
    """

    def checked() -> Iterable[Path]:
        for name in model_files(Manifest.read(split_dir), kind):
            require_whole(split_dir, only=(name,))
            yield split_dir / name

    return first_models(checked(), n_models)


def model_files(manifest: Manifest, kind: str) -> list[str]:
    """Return the files of a set's weights, in the order of the models."""
    return sorted(path for path in manifest.files if path.startswith(f"hidden/{kind}/models-"))


def first_models(files: Iterable[Path], n_models: int) -> list[State]:
    """Return the first models in files of stacked ones, at most n_models. No file is asked for once there are so many.

    files: each tensor has the models along its first axis.
    """
    found: list[State] = []
    for path in files if n_models else ():
        with safe_open(path, framework="pt") as stacked:
            names = list(stacked.keys())
            slices = {name: stacked.get_slice(name) for name in names}
            n_here = min(n_models - len(found), slices[names[0]].get_shape()[0])
            found += [{name: slices[name][index].clone() for name in names} for index in range(n_here)]
        if len(found) >= n_models:
            break
    return found


def _repeatable(device: torch.device) -> ExitStack:
    """Return the context in which a probe gives the same numbers every time: the evaluator's, and for training."""
    with ExitStack() as stack:
        stack.enter_context(one_thread(device))
        stack.enter_context(zero_for_denormals(device))
        stack.enter_context(device_arithmetic("float32", device))
        stack.enter_context(repeatable_attention(device))
        return stack.pop_all()
