"""The arrays of one prepared split, as metrics read them: of the unlearned models and of every reference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.competition.file import Metric
from lethe.data.errors import SplitNotPrepared
from lethe.data.files import read_tensors
from lethe.data.stored_sets import SET_PATHS, StoredSet
from lethe.evaluation.capture import retain_subset
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import (
    ORIGINAL_OUTPUTS,
    OUTPUT_PATHS,
    RANDOM_OUTPUTS,
    read_stored_outputs,
)
from lethe.metrics import Inputs
from lethe.metrics.epsilon.attacks.family import AttackFamily
from lethe.metrics.epsilon.epsilon import per_example_epsilon

Arrays = dict[str, NDArray[Any]]


def split_inputs(split_dir: Path, unlearned: Mapping[str, NDArray[Any]] | None, *, scored_by: Metric) -> Inputs:
    """Return the arrays of the unlearned models beside those that a prepared split stores.

    scored_by: how the competition's score computes the epsilon of each forget example.
    """
    retrained = _stored(split_dir / OUTPUT_PATHS["retrained"])
    if retrained is None:
        raise SplitNotPrepared(f"{split_dir} has no outputs of retrained models; prepare the split again")
    sides = {
        "unlearned": None if unlearned is None else dict(unlearned),
        "oracle": _stored(split_dir / OUTPUT_PATHS["oracle"]),
        "original": _stored(split_dir / ORIGINAL_OUTPUTS),
    }
    with_epsilon = {
        name: None if arrays is None else arrays | {"epsilon": _epsilon(arrays, retrained, scored_by)}
        for name, arrays in sides.items()
    }
    return Inputs(retrained=retrained, shared=_shared(split_dir), **with_epsilon)


def reference_inputs(split_dir: Path) -> Inputs:
    """Return the arrays of the retrained models, the oracle and the original; the manifest need not be there yet."""
    retrained = _stored(split_dir / OUTPUT_PATHS["retrained"])
    if retrained is None:
        raise SplitNotPrepared(f"{split_dir} has no outputs of retrained models; prepare the split again")
    oracle, original = _stored(split_dir / OUTPUT_PATHS["oracle"]), _stored(split_dir / ORIGINAL_OUTPUTS)
    return Inputs(retrained=retrained, oracle=oracle, original=original, shared={})


def _epsilon(arrays: Arrays, retrained: Arrays, scored_by: Metric) -> NDArray[np.float64]:
    """Return the epsilon of each forget example; one model stands for as many copies as there are retrained ones."""
    models = retrained["confidences"]
    confidences = arrays["confidences"]
    if len(confidences) == 1:
        confidences = np.repeat(confidences, len(models), axis=0)
    return per_example_epsilon(
        confidences,
        models,
        attacks=AttackFamily(scored_by.attacks),
        delta=scored_by.delta,
        cap=scored_by.epsilon_cap,
    )


def _stored(path: Path) -> Arrays | None:
    if not path.is_file():
        return None  # a split that was prepared before this side was evaluated
    return dict(read_stored_outputs(path)[0].arrays())


def _shared(split_dir: Path) -> Arrays:
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
