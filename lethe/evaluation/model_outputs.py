"""Outputs of complete sets of models, original models, and the arrays of one split as metrics read them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lethe.competition.file import Scoring
from lethe.data.errors import DamagedSplit, SplitNotPrepared
from lethe.data.files import read_tensors, read_tensors_and_metadata, write_tensors
from lethe.data.stored_sets import SET_PATHS
from lethe.evaluation.evaluators import shared_arrays
from lethe.evaluation.manifest import Manifest, find_damage, require_whole
from lethe.evaluation.ranking import OFFLINE_SEED
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.metrics import Inputs, Side
from lethe.metrics.scoring.attacks.family import MIN_MODELS_DIVIDED
from lethe.metrics.scoring.epsilon import per_example_epsilon
from lethe.runtime.weights_layout import ORIGINAL_MODEL, read_layout

ORIGINAL = f"visible/{ORIGINAL_MODEL}"


def find_place(manifest: Manifest, index: int) -> tuple[str, int]:
    """Return the file that holds original model `index`, and the model's position in it.

    Raises SplitNotPrepared where no file does.
    """
    for name, step in manifest.steps.items():
        if name.startswith("originals-") and "first_model" in step.values:
            position = index - int(step.values["first_model"])
            if 0 <= position < int(step.values["n_models"]):
                return next(iter(step.files)), position
    raise SplitNotPrepared(
        f"the {manifest.visibility} split of {manifest.competition} was prepared for setup {manifest.setup} and has no "
        f"original model {index}: prepare it again"
    )


def read_integer_buffers(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a model's file that are not floating point: counters, positions to look up."""
    with safe_open(path, framework="pt") as model:
        names = [name for name in model.keys() if not model.get_slice(name).get_dtype().startswith(("F", "BF"))]  # noqa: SIM118
        # copies: what safetensors returns are views of the file, which show what is written to it later
        return {name: model.get_tensor(name).clone() for name in names}


def read_original(split_dir: Path, path: str, position: int) -> bytes:
    """Return one of the models stored at `path` as a safetensors file with the header of the visible original model.

    Raises DamagedSplit.
    """
    layout = read_layout((split_dir / ORIGINAL).read_bytes())
    parts = [layout.header]
    try:
        with safe_open(split_dir / path, framework="pt") as models:
            for slot in layout.tensors:
                values = models.get_slice(slot.name)[position : position + 1].contiguous()
                parts.append(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    except (SafetensorError, OSError) as error:
        raise DamagedSplit(f"{split_dir / path} is damaged ({error}): prepare the split again") from error
    model = b"".join(parts)
    if len(model) != layout.frame_bytes:
        raise DamagedSplit(f"{split_dir / path} holds other tensors than {ORIGINAL}: prepare the split again")
    return model


Kind = Literal["retrained", "oracle", "originals"]
RANDOM_OUTPUTS = "hidden/random/outputs.safetensors"  # of networks that were never trained: random_forget_logits
RECIPE_OUTPUTS = "hidden/recipes/outputs.safetensors"  # recipe_confidences and so on: of retraining by other recipes
PROBED_REFERENCES = "hidden/probes.safetensors"  # arrays of level 4 by side: retrained/relearn_epochs and so on
ORIGINAL_OUTPUTS = "hidden/original/outputs.safetensors"  # of the one original model that all runs start from
OUTPUT_PATHS: dict[Kind, str] = {
    "retrained": "hidden/retrained/outputs.safetensors",
    "oracle": "hidden/oracle/outputs.safetensors",
    "originals": "hidden/originals/outputs.safetensors",
}


def write_outputs(outputs: StoredOutputs, path: Path, *, metadata: dict[str, str] | None = None) -> None:
    _write(path, outputs.arrays(), metadata)


def _write(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str] | None = None) -> None:
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    write_tensors(path, tensors, metadata=metadata)


def read_stored_outputs(path: Path) -> tuple[StoredOutputs, dict[str, str]]:
    """Return the outputs stored at `path` and the file's metadata. Raises DamagedSplit or SplitNotPrepared."""
    tensors, metadata = read_tensors_and_metadata(path)
    names = StoredOutputs.own_arrays()[:3]
    if any(name not in tensors for name in names):
        raise DamagedSplit(f"{path} lacks one of {', '.join(names)}: prepare the split again to make this file again")
    return StoredOutputs.of_arrays({name: tensor.numpy() for name, tensor in tensors.items()}), metadata


def read_outputs(split_dir: Path, kind: Kind = "retrained") -> StoredOutputs:
    """Return the stored outputs of a prepared split, checked against its manifest.

    Raises DamagedSplit naming the file where it is not what was made.
    """
    path = OUTPUT_PATHS[kind]
    record = Manifest.read(split_dir).files.get(path)
    damage = find_damage(split_dir, path, record) if record else None
    if record is None or damage:
        raise DamagedSplit(f"{split_dir}: {damage or path + ': not in the manifest'}. Prepare the split again")
    return read_stored_outputs(split_dir / path)[0]


def write_probed_references(split_dir: Path, sides: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
    """Store the references' arrays of level 4, by side."""
    named = {f"{side}/{name}": array for side, arrays in sides.items() for name, array in arrays.items()}
    _write(split_dir / PROBED_REFERENCES, named)


def read_probed_references(split_dir: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the references' arrays of level 4, by side."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for name, tensor in read_tensors_and_metadata(split_dir / PROBED_REFERENCES)[0].items():
        side, _, array = name.partition("/")
        found.setdefault(side, {})[array] = tensor.numpy()
    return found


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
    retrained = _stored_retrained(split_dir)
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
    retrained = _stored_retrained(split_dir)
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


def _stored_retrained(split_dir: Path) -> Arrays:
    retrained = _stored(split_dir / OUTPUT_PATHS["retrained"])
    if retrained is None:
        raise SplitNotPrepared(f"{split_dir} has no outputs of retrained models; prepare the split again")
    return retrained


def _stored(path: Path) -> Arrays | None:
    if not path.is_file():
        return None  # a split that was prepared before this side was evaluated
    return dict(read_stored_outputs(path)[0].arrays())
