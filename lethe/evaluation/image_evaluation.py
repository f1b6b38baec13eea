"""Evaluation of image classifiers: what `lethe.evaluation.evaluators` asks of a kind of task."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.data.files import read_json, read_tensors
from lethe.data.stored_sets import SET_PATHS, StoredSet
from lethe.evaluation.capture import retain_subset
from lethe.evaluation.inference import SplitEvaluator
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import RANDOM_OUTPUTS
from lethe.evaluation.original_models import read_integer_buffers
from lethe.runtime.weights_layout import ORIGINAL_MODEL


def load(split_dir: Path, device: str) -> SplitEvaluator:
    return SplitEvaluator.load(split_dir, device=device)


def load_sample(sample_dir: Path) -> SplitEvaluator:
    sets = {name: StoredSet.read(sample_dir / f"{name}.safetensors") for name in ("forget", "retain", "validation")}
    sets["test"] = sets.pop("validation")
    integer_buffers = read_integer_buffers(sample_dir / ORIGINAL_MODEL)
    return SplitEvaluator(read_json(sample_dir / "network.json"), sets, integer_buffers=integer_buffers)


def shared_arrays(split_dir: Path) -> dict[str, NDArray[Any]]:
    sets = {name: StoredSet.read(split_dir / SET_PATHS[name]) for name in ("forget", "retain", "test")}
    labels = {name: stored.labels.numpy() for name, stored in sets.items()}
    sizes = {name: len(values) for name, values in labels.items()}
    kept = retain_subset(sizes["retain"], n_forget=sizes["forget"], n_test=sizes["test"])
    arrays = {
        "forget_labels": labels["forget"],
        "test_labels": labels["test"],
        "retain_labels": labels["retain"][kept],
        "retraining_time_s": np.asarray(Manifest.read(split_dir).retraining_time_s),
    }
    random_outputs = split_dir / RANDOM_OUTPUTS
    if random_outputs.is_file():
        arrays["random_forget_logits"] = read_tensors(random_outputs)["random_forget_logits"].numpy()
    return arrays
