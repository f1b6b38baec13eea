"""The public sample that smoke runs use, and models retrained on it: small, complete, revealing nothing that is hidden.

Its examples come from the validation set, which no model of the competition was trained on, and its original model
is trained on them alone; so whatever a smoke run prints may be shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lethe.competition.estimates import kit_models
from lethe.competition.file import CompetitionFile
from lethe.data.errors import InvalidSplit
from lethe.data.files import read_json, read_tensors, write_json, write_tensors
from lethe.data.forget_sets import Cut, Indices
from lethe.data.seeds import derive_seed, numpy_generator
from lethe.evaluation.evaluators import sample_evaluator
from lethe.evaluation.shard_outputs import RunOutputs, ShardOutputs
from lethe.preparation.task_kinds import TaskPreparation, task_preparation
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from lethe.training.trainer import Job, State, train_model

SAMPLE_SETS = ("retain", "forget", "validation")
SAMPLE_FILES = (
    "sample/network.json",
    f"sample/{ORIGINAL_MODEL}",
    *(f"sample/{name}.safetensors" for name in SAMPLE_SETS),
)
MIN_IMAGES, MAX_IMAGES = 256, 2048  # unless the competition says how many
MAX_EPOCHS = 10


def write_sample(
    split_dir: Path,
    competition: CompetitionFile,
    task: TaskPreparation,
    dataset: Any,
    cut: Cut,
    *,
    network: dict[str, Any],
    device: str,
) -> None:
    """Write the five files of the sample; they are the same for the public and the private split."""
    folder = split_dir / "sample"
    parts = sample_parts(cut.validation, competition)
    task.write_sample_sets(split_dir, competition, dataset, parts)
    write_json(folder / "network.json", network)
    sets = [task.read_set(folder / f"{name}.safetensors") for name in ("retain", "forget")]
    job = task.make_job(split_dir, with_sample_recipe(competition), network, sets, device=device)
    write_tensors(folder / ORIGINAL_MODEL, train_model(job, derive_seed(competition.slug, "sample", 0)))


def with_sample_recipe(competition: CompetitionFile) -> CompetitionFile:
    """Return the competition with the recipe of models that are trained on the sample."""
    recipe = competition.training
    changes: dict[str, Any] = {"epochs": min(recipe.epochs, MAX_EPOCHS), "warmup_epochs": 0}
    if competition.task.kind == "image-classification":
        changes["schedule"] = "constant"
    return competition.model_copy(update={"training": recipe.model_copy(update=changes)})


def sample_parts(validation: Indices, competition: CompetitionFile) -> dict[str, Indices]:
    """Return examples in three parts: an eighth to forget, a quarter for validation, the rest to retain.

    They are `splits.sample_images`, by default half of the validation set within bounds: code written for the full
    data takes many batches for granted, and a smoke run should not be what ends it. Raises InvalidSplit where a part
    would be empty.
    """
    wanted = competition.splits.sample_images or min(max(MIN_IMAGES, len(validation) // 2), MAX_IMAGES)
    order = numpy_generator(derive_seed(competition.slug, "sample")).permutation(validation)[:wanted]
    n_forget, n_validation = max(1, len(order) // 8), max(1, len(order) // 4)
    cuts = {
        "forget": order[:n_forget],
        "validation": order[n_forget : n_forget + n_validation],
        "retain": order[n_forget + n_validation :],
    }
    if len(cuts["retain"]) == 0:
        raise InvalidSplit(
            f"the validation set has {len(validation)} {competition.task.example}s, too few for the public sample "
            "that is made of it: raise splits.validation_fraction"
        )
    return {name: np.sort(cuts[name]) for name in SAMPLE_SETS}


CHECKPOINT_BYTES = 32 << 20  # of all checkpoints in a kit together; one is there in any case


@dataclass(frozen=True)
class SampleModels:
    """Outputs of all retrained models, and the weights of as many as a kit has space for.

    finetuned: outputs of as many copies of the original model, trained for one more epoch on the retain set; of images.
    """

    outputs: ShardOutputs
    states: tuple[State, ...]
    finetuned: ShardOutputs | None = None


def retrain_on_sample(sample_dir: Path, competition: CompetitionFile, *, device: str = "cpu") -> SampleModels:
    """Train models on the sample's retain set, by the recipe that made its original model, and fine-tune that one."""
    network = read_json(sample_dir / "network.json")
    task = task_preparation(competition.task.kind)
    retain = task.read_set(sample_dir / "retain.safetensors")
    n_bytes = (sample_dir / ORIGINAL_MODEL).stat().st_size
    job = task.make_job(sample_dir.parent, with_sample_recipe(competition), network, [retain], device=device)
    evaluator = sample_evaluator(sample_dir)
    n_kept = max(1, CHECKPOINT_BYTES // n_bytes)
    n_models = kit_models(competition.n_models, network_bytes=n_bytes)
    outputs: list[RunOutputs] = []
    kept: tuple[State, ...] = ()
    for start in range(0, n_models, n_kept):
        indices = range(start, min(start + n_kept, n_models))
        trained = task.train_models(job, {index: derive_seed(competition.slug, "kit", index) for index in indices})
        states = [{name: values[place] for name, values in trained.items()} for place in range(len(indices))]
        outputs += [evaluator.evaluate_state(state) for state in states]
        kept = kept or tuple(states)
    finetuned = None
    if competition.task.kind == "image-classification":
        again = [derive_seed(competition.slug, "kit-finetuned", index) for index in range(n_models)]
        original = read_tensors(sample_dir / ORIGINAL_MODEL)
        finetuned = _stacked([evaluator.evaluate_state(_finetuned(job, original, seed)) for seed in again])
    return SampleModels(_stacked(outputs), kept, finetuned)


def _finetuned(job: Job, original: State, seed: int) -> State:
    """Return the original model after one more epoch on the retain set."""
    training = job.start(seed)
    training.net.load_state_dict(original)
    training.run_epoch()
    return {name: value.cpu() for name, value in training.state().items()}


def _stacked(outputs: Sequence[RunOutputs]) -> ShardOutputs:
    return ShardOutputs(
        confidences=np.stack([output.confidences for output in outputs]),
        retain_accuracy=np.array([output.retain_accuracy for output in outputs]),
        test_accuracy=np.array([output.test_accuracy for output in outputs]),
        wall_time_s=np.zeros(len(outputs)),
    )
