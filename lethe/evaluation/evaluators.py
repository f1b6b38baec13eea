"""What evaluates the models of a prepared split, by the kind of its task.

Each kind is a module with `load`, `load_sample` and `shared_arrays`; network.json names the kind.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.data.files import read_json
from lethe.evaluation.manifest import NETWORK_PATH
from lethe.evaluation.shard_outputs import RunOutputs

IMAGES = "image-classification"
MODULES = {IMAGES: "lethe.evaluation.image_evaluation", "causal-lm": "lethe.evaluation.answer_evaluation"}


class Evaluator(Protocol):
    """Turns the weights of models of one split into the arrays that they are scored by."""

    @property
    def network(self) -> Mapping[str, Any]: ...

    @property
    def device(self) -> torch.device: ...

    def evaluate(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> RunOutputs:
        """Return the outputs of the model in `weights`, one checked safetensors file. Raises NonFiniteOutputs."""

    def evaluate_state(self, state: Mapping[str, Tensor]) -> RunOutputs:
        """Return the outputs of the model with this state_dict. Raises NonFiniteOutputs."""


def load_evaluator(split_dir: Path, device: str = "cpu") -> Evaluator:
    """Return the evaluator of a prepared split, having checked the hashes of the files that it reads.

    Raises SplitNotPrepared, or DamagedSplit naming the file.
    """
    evaluator: Evaluator = _module(split_dir / NETWORK_PATH).load(split_dir, device=device)
    return evaluator


def sample_evaluator(sample_dir: Path) -> Evaluator:
    """Return what evaluates models on the public sample; its validation set is used as the hidden test set.

    As on the server, a run's integers are those of the original model.
    """
    evaluator: Evaluator = _module(sample_dir / "network.json").load_sample(sample_dir)
    return evaluator


def shared_arrays(split_dir: Path) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a prepared split that belong to no model, such as labels."""
    arrays: dict[str, NDArray[np.generic]] = _module(split_dir / NETWORK_PATH).shared_arrays(split_dir)
    return arrays


def _module(network_file: Path) -> Any:
    return import_module(MODULES[read_json(network_file).get("task", IMAGES)])
