"""A few models that never saw the sample's forget set, and their outputs: what a local score is computed against."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.competition.file import CompetitionFile
from lethe.data.files import read_json
from lethe.data.seeds import derive_seed
from lethe.data.stored_sets import StoredSet
from lethe.evaluation.inference import RunOutputs, SplitEvaluator
from lethe.evaluation.original_models import read_whole_numbers
from lethe.evaluation.shard_outputs import ShardOutputs
from lethe.preparation.public_sample import MOST_EPOCHS
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from lethe.training.trainer import State, TrainingJob, train_model

MODELS = 8
MODELS_OF_SMALL_NETWORKS = 32
SMALL_NETWORK_BYTES = 4 << 20
CHECKPOINT_BYTES = 32 << 20  # of all checkpoints in a kit together; one is there in any case


@dataclass(frozen=True)
class SampleModels:
    """Outputs of all the models, and the weights of as many as a kit has space for."""

    outputs: ShardOutputs
    states: tuple[State, ...]


def sample_evaluator(sample_dir: Path) -> SplitEvaluator:
    """Return what evaluates models on the sample; its validation set stands in for the hidden test set.

    As on the server, a run's integers are those of the original model.
    """
    sets = {name: StoredSet.read(sample_dir / f"{name}.safetensors") for name in ("forget", "retain", "validation")}
    sets["test"] = sets.pop("validation")
    whole_numbers = read_whole_numbers(sample_dir / ORIGINAL_MODEL)
    return SplitEvaluator(read_json(sample_dir / "network.json"), sets, whole_numbers=whole_numbers)


def retrain_on_sample(sample_dir: Path, competition: CompetitionFile, *, device: str = "cpu") -> SampleModels:
    """Train models on the sample's retain set, by the recipe that made its original model."""
    network = read_json(sample_dir / "network.json")
    retain = StoredSet.read(sample_dir / "retain.safetensors")
    n_bytes = (sample_dir / ORIGINAL_MODEL).stat().st_size
    recipe = competition.training.model_copy(
        update={"epochs": min(competition.training.epochs, MOST_EPOCHS), "schedule": "constant", "warmup_epochs": 0}
    )
    job = TrainingJob.on_device(network, recipe, retain.images, retain.labels, device=device)
    evaluator = sample_evaluator(sample_dir)
    n_kept = max(1, CHECKPOINT_BYTES // n_bytes)
    outputs: list[RunOutputs] = []
    states: list[State] = []
    for index in range(MODELS_OF_SMALL_NETWORKS if n_bytes <= SMALL_NETWORK_BYTES else MODELS):
        state = {
            name: value.cpu() for name, value in train_model(job, derive_seed(competition.slug, "kit", index)).items()
        }
        outputs.append(evaluator.evaluate_state(state))
        if len(states) < n_kept:
            states.append(state)
    stacked = ShardOutputs(
        confidences=np.stack([output.confidences for output in outputs]),
        retain_accuracy=np.array([output.retain_accuracy for output in outputs]),
        test_accuracy=np.array([output.test_accuracy for output in outputs]),
        wall_time_s=np.zeros(len(outputs)),
    )
    return SampleModels(outputs=stacked, states=tuple(states))
