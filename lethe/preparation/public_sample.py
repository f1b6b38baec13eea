"""The public sample that smoke runs use: small, complete, and revealing nothing about the hidden sets.

Its examples come from the validation set, which no model of the competition was trained on, and its original model
is trained on them alone; so whatever a smoke run prints may be shown.
"""

from pathlib import Path
from typing import Any

import numpy as np

from lethe.competition.file import CompetitionFile
from lethe.data.errors import InvalidSplit
from lethe.data.files import write_json, write_tensors
from lethe.data.partition import Cut, Indices
from lethe.data.seeds import derive_seed, numpy_generator
from lethe.preparation.task_kinds import TaskPreparation
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from lethe.training.trainer import train_model

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
