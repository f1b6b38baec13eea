"""The arrays of one prepared split, as metrics read them: of the unlearned models and of every reference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.competition.file import Scoring
from lethe.data.errors import SplitNotPrepared
from lethe.data.files import read_tensors
from lethe.data.stored_sets import SET_PATHS
from lethe.evaluation.evaluators import shared_arrays
from lethe.evaluation.manifest import require_whole
from lethe.evaluation.model_outputs import (
    ORIGINAL_OUTPUTS,
    OUTPUT_PATHS,
    PROBED_REFERENCES,
    RANDOM_OUTPUTS,
    RECIPE_OUTPUTS,
    read_probed_references,
    read_stored_outputs,
)
from lethe.evaluation.ranking import OFFLINE_SEED
from lethe.metrics import Inputs, Side
from lethe.metrics.scoring.attacks.family import MIN_MODELS_DIVIDED
from lethe.metrics.scoring.epsilon import per_example_epsilon

Arrays = dict[str, NDArray[Any]]
LABELLED_SETS = ("forget", "retain", "test")
FILES_READ = frozenset(
    {
        *OUTPUT_PATHS.values(),
        ORIGINAL_OUTPUTS,
        RANDOM_OUTPUTS,
        PROBED_REFERENCES,
        RECIPE_OUTPUTS,
        *(SET_PATHS[name] for name in LABELLED_SETS),
    }
)


def split_inputs(
    split_dir: Path,
    unlearned: Mapping[str, NDArray[Any]] | None,
    *,
    scored_by: Scoring,
    attack_seed: int = OFFLINE_SEED,
    probed: Mapping[str, Arrays] | None = None,
) -> Inputs:
    """Return the arrays of the unlearned models beside those that a prepared split stores.

    scored_by, attack_seed: how the competition's score computes the epsilon of each forget example. probed: arrays of
    level 4 by side (`lethe.evaluation.probes.split_probes`), in place of those that the split stores of its references.
    Raises DamagedSplit if a file that is read is not what was prepared.
    """
    manifest = require_whole(split_dir, only=FILES_READ)
    retrained = _stored(split_dir / OUTPUT_PATHS["retrained"])
    if retrained is None:
        raise SplitNotPrepared(f"{split_dir} has no outputs of retrained models; prepare the split again")
    sides = {
        "unlearned": None if unlearned is None else dict(unlearned),
        "oracle": _stored(split_dir / OUTPUT_PATHS["oracle"]),
        "original": _stored(split_dir / ORIGINAL_OUTPUTS),
    }
    with_epsilon = {
        name: None if arrays is None else arrays | _epsilon(arrays, retrained, scored_by, attack_seed)
        for name, arrays in sides.items()
    }
    further = read_probed_references(split_dir) if PROBED_REFERENCES in manifest.files else {}
    further |= probed or {}
    shared = dict(shared_arrays(split_dir))
    if RECIPE_OUTPUTS in manifest.files:
        shared |= {name: tensor.numpy() for name, tensor in read_tensors(split_dir / RECIPE_OUTPUTS).items()}
    given = with_epsilon | {"retrained": retrained, "shared": shared}
    return Inputs(**{side: arrays and arrays | further.get(side, {}) for side, arrays in given.items()})


def with_unlearned(
    references: Inputs,
    unlearned: Mapping[str, NDArray[Any]],
    *,
    scored_by: Scoring,
    probed: Mapping[str, NDArray[Any]] | None = None,
) -> Inputs:
    """Return the arrays of unlearned models beside those of the references; what these compute is shared.

    references: `split_inputs` without unlearned models. probed: arrays of level 4 of the unlearned models.
    """
    retrained = {"confidences": references.array(Side.RETRAINED, "confidences")}
    arrays = dict(unlearned)
    epsilon = _epsilon(arrays, retrained, scored_by, OFFLINE_SEED)
    return references.with_unlearned(arrays | epsilon | dict(probed or {}))


def reference_inputs(split_dir: Path) -> Inputs:
    """Return the arrays of the retrained models, the oracle and the original; the manifest need not be there yet."""
    retrained = _stored(split_dir / OUTPUT_PATHS["retrained"])
    if retrained is None:
        raise SplitNotPrepared(f"{split_dir} has no outputs of retrained models; prepare the split again")
    oracle, original = _stored(split_dir / OUTPUT_PATHS["oracle"]), _stored(split_dir / ORIGINAL_OUTPUTS)
    return Inputs(retrained=retrained, oracle=oracle, original=original, shared={})


def _epsilon(arrays: Arrays, retrained: Arrays, scored_by: Scoring, attack_seed: int) -> Arrays:
    """Return the array `epsilon` of the forget examples; one model stands for as many copies as there are retrained.

    Where one side has more models than the other, its first ones are compared; too few to divide have no epsilon.
    """
    models = retrained["confidences"]
    confidences = arrays["confidences"]
    if len(confidences) == 1:
        confidences = np.repeat(confidences, len(models), axis=0)
    n_models = min(len(models), len(confidences))
    if scored_by.attacks.divides_models and n_models < MIN_MODELS_DIVIDED:
        return {}
    epsilon = per_example_epsilon(
        confidences[:n_models],
        models[:n_models],
        attacks=scored_by.attacks,
        delta=scored_by.delta,
        cap=scored_by.epsilon_cap,
        seed=OFFLINE_SEED if scored_by.attacks.is_published else attack_seed,
    )
    return {"epsilon": epsilon}


def _stored(path: Path) -> Arrays | None:
    if not path.is_file():
        return None  # a split that was prepared before this side was evaluated
    return dict(read_stored_outputs(path)[0].arrays())
