"""The arrays of capture level 4: the probes on some unlearned models, and on the references that a split stores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor, nn

from lethe.data.files import read_json
from lethe.data.stored_sets import SET_PATHS, StoredSet
from lethe.evaluation.inference import load_original
from lethe.evaluation.manifest import NETWORK_PATH, Manifest, require_whole
from lethe.evaluation.original_models import ORIGINAL
from lethe.evaluation.probes.perturbation import RADII, perturbed_accuracy
from lethe.evaluation.probes.relearn import mean_loss, relearn_epochs
from lethe.metrics.invalid_input import InvalidMetricInput
from lethe.networks.builders import build, to_inputs

RELEARNING_SHARE = 0.1  # of the training's learning rate
State = dict[str, Tensor]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class SplitProbes:
    """What the probes need of a split. images, labels: the forget set as the network's inputs."""

    network: nn.Module
    images: Tensor
    labels: Tensor
    original_loss: float
    learning_rate: float

    @classmethod
    def load(cls, split_dir: Path) -> Self:
        """Return the probes of a prepared split of images.

        Raises InvalidMetricInput for a split of language models, DamagedSplit naming a file.
        """
        manifest = require_whole(split_dir, only=(NETWORK_PATH, ORIGINAL, SET_PATHS["forget"]))
        if "task" in manifest.recipe:
            raise InvalidMetricInput(f"{split_dir} is of language models; the probes are for classifiers of images")
        network = read_json(split_dir / NETWORK_PATH)
        forget = StoredSet.read(split_dir / SET_PATHS["forget"])
        images, net = to_inputs(forget.images, network), build(network)
        net.load_state_dict(load_original(split_dir))
        return cls(
            network=net,
            images=images,
            labels=forget.labels,
            original_loss=mean_loss(net, images, forget.labels),
            learning_rate=RELEARNING_SHARE * float(manifest.recipe["training"]["learning_rate"]),
        )

    def arrays(self, models: Sequence[State]) -> Arrays:
        """Return `relearn_epochs` [k] and `perturbed_accuracy` [k, D, S] of k models."""
        forget_set = self.images, self.labels
        scale = float(self.images.max() - self.images.min()) or 1.0
        epochs = [
            relearn_epochs(
                self.network,
                state,
                *forget_set,
                original_loss=self.original_loss,
                learning_rate=self.learning_rate,
            )
            for state in models
        ]
        accuracies = [perturbed_accuracy(self.network, state, *forget_set, input_scale=scale) for state in models]
        return {"relearn_epochs": np.array(epochs), "perturbed_accuracy": np.stack(accuracies)}


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
    sides = {"unlearned": unlearned, "retrained": retrained, "oracle": oracle, "original": [load_original(split_dir)]}
    found = {side: probes.arrays(models) for side, models in sides.items() if models}
    return found | {"shared": {"perturbation_radii": np.array(RADII)}}


def stored_models(split_dir: Path, kind: str, n_models: int) -> list[State]:
    """Return the first models of a set whose weights the split stores, at most n_models; none if it stores none.

    Raises DamagedSplit if a file that is read is not what was prepared.
    """
    files = sorted(path for path in Manifest.read(split_dir).files if path.startswith(f"hidden/{kind}/models-"))
    found: list[State] = []
    for path in files:
        if len(found) >= n_models:
            break
        require_whole(split_dir, only=(path,))
        with safe_open(split_dir / path, framework="pt") as stacked:
            names = list(stacked.keys())
            slices = {name: stacked.get_slice(name) for name in names}
            n_here = min(n_models - len(found), slices[names[0]].get_shape()[0])
            found += [{name: slices[name][index].clone() for name in names} for index in range(n_here)]
    return found
