"""A few models that never saw the sample's forget set, and fine-tuned ones: what a local score is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.competition.file import CompetitionFile
from lethe.competition.kit_models import kit_models
from lethe.data.files import read_json, read_tensors
from lethe.data.seeds import derive_seed
from lethe.evaluation.evaluators import sample_evaluator
from lethe.evaluation.shard_outputs import RunOutputs, ShardOutputs
from lethe.preparation.public_sample import with_sample_recipe
from lethe.preparation.task_kinds import task_preparation
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from lethe.training.trainer import Job, State

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
