"""Sets of N models, trained and evaluated a shard at a time; each model is a function of (split, index) alone."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.competition.file import CompetitionFile, Training
from lethe.competition.preparation_share import ORACLE, ORIGINALS, RETRAINED, VARIATION
from lethe.data.errors import DamagedSplit, SplitNotPrepared
from lethe.data.files import read_tensors, write_tensors
from lethe.data.seeds import derive_seeds
from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.model_outputs import OUTPUT_PATHS, Kind, read_stored_outputs, write_outputs
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.preparation.step_cache import OnProgress, PreparationProgress
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.many_models import ENSEMBLE_SIZE, model_bytes, stacks_well
from lethe.training.trainer import Job, OnNote, State, check_learned

if TYPE_CHECKING:
    from lethe.preparation.task_kinds import TaskPreparation

log = logging.getLogger(__name__)
STAGES: dict[Kind, str] = {"retrained": RETRAINED, "oracle": ORACLE, "originals": ORIGINALS}
MODEL_NAMES: dict[Kind, str] = {"retrained": "retrained model", "oracle": "oracle model", "originals": "original model"}
MODELS_PER_SHARD = ENSEMBLE_SIZE
SHARD_BYTES = 2**30
SHARD_S = 300.0  # what a lost worker may cost, and how long others may wait for the last shard


def models_per_shard(network: Mapping[str, Any], recipe: Training, *, model_s: float, device: str) -> int:
    """Return how many models are trained together and kept in one file.

    At most 64, about 1 GiB, and (a power of two) about five minutes of work, where a model takes `model_s`. Models that
    are stacked go 64 at a time whatever they take, since a stack costs the same with fewer.
    """
    most = max(1, min(MODELS_PER_SHARD, SHARD_BYTES // model_bytes(network)))
    if stacks_well(network, recipe, device=device):
        return most
    wanted = max(1, int(SHARD_S / model_s))
    return min(most, 1 << (wanted.bit_length() - 1))


@dataclass(frozen=True)
class ShardPlan:
    """How N models are laid into files. model_s: about how long one takes to train."""

    n_models: int
    models_per_shard: int
    model_s: float

    @property
    def n_shards(self) -> int:
        return -(-self.n_models // self.models_per_shard)

    def indices(self, shard: int) -> range:
        start = shard * self.models_per_shard
        return range(start, min(start + self.models_per_shard, self.n_models))

    def checkpoint_path(self, kind: Kind, shard: int) -> str:
        return f"hidden/{kind}/models-{shard:05d}.safetensors"


@dataclass(frozen=True)
class ModelShards:
    """One set of N models (the retrained ones, the oracle's, or the runs' own originals) of one split.

    variation: of the recipe, its label; such models are dropped once evaluated, as the oracle's are.
    """

    split_dir: Path
    kind: Kind
    task: "TaskPreparation"
    plan: ShardPlan
    make_job: Callable[[], Job]
    seed_words: tuple[str, ...]
    competition: CompetitionFile
    data_digest: str
    evaluator: Callable[[], Evaluator]
    progress: OnProgress
    variation: str = ""

    @property
    def stage(self) -> str:
        return VARIATION.format(label=self.variation) if self.variation else STAGES[self.kind]

    @property
    def _work(self) -> Path:
        place = Path("recipes", self.variation) if self.variation else Path(self.kind)
        return self.split_dir / "work" / place

    def make(self, shard: int) -> dict[str, Any]:
        """Train a shard's models, store them, evaluate them and check that each has learnt.

        Return which models the file holds, where runs look theirs up, and what an organiser should know of how they
        were trained.
        """
        notes: list[str] = []
        indices = self.plan.indices(shard)
        models = self._train(indices, shard=shard, on_note=notes.append)
        write_tensors(self.split_dir / self.plan.checkpoint_path(self.kind, shard), models)
        self._evaluate(shard, models)
        values: dict[str, Any] = {"notes": notes} if notes else {}
        if self.kind == "originals":
            values |= {"first_model": indices.start, "n_models": len(indices)}
        return values

    def write_outputs(self) -> dict[str, Any]:
        """Write the outputs of all N models, training or evaluating only the shards that have none yet."""
        outputs = self.all_outputs()
        write_outputs(outputs, self.split_dir / OUTPUT_PATHS[self.kind])
        return {
            "mean_retain_accuracy": float(outputs.retain_accuracy.mean()),
            "mean_test_accuracy": float(outputs.test_accuracy.mean()),
        }

    def all_outputs(self) -> StoredOutputs:
        """Return the outputs of all N models."""
        return StoredOutputs.joined([self.outputs(shard) for shard in range(self.plan.n_shards)])

    def outputs(self, shard: int) -> StoredOutputs:
        """Return the outputs of one shard's models: those kept, or of the stored models, or of newly trained ones."""
        part = self._read_part(shard)
        if part is not None:
            return part
        if self.kind == "oracle":
            return self._evaluate(shard, self._train(self.plan.indices(shard), shard=shard))
        return self._evaluate(shard, read_tensors(self.split_dir / self.plan.checkpoint_path(self.kind, shard)))

    def store_first(self, n_models: int, path: str) -> None:
        """Train the first models once more and store them: of a set whose models are dropped once evaluated."""
        indices = range(n_models)
        write_tensors(self.split_dir / path, self._train(indices, shard=0))
        self._checkpoints().clear(indices)

    def _train(self, indices: range, *, shard: int, on_note: OnNote = lambda _: None) -> State:
        model_seeds = derive_seeds(*self.seed_words, self.kind, indices=indices)
        done = indices.start
        job = self.make_job()
        epochs = job.recipe.epochs
        finished = 0

        def on_epoch(n_models: int) -> None:
            nonlocal finished
            finished += n_models
            self.progress(PreparationProgress(self.stage, done + round(finished / epochs, 2), self.plan.n_models))

        def tell(note: str) -> None:
            names = {"competition": self.competition.slug, "stage": self.stage, "shard": shard}
            log.warning("a note on how models are trained: %s (%s)", note, names)
            on_note(note)

        seeds = dict(zip(indices, model_seeds, strict=True))
        return self.task.train_models(job, seeds, checkpoints=self._checkpoints(), on_epoch=on_epoch, on_note=tell)

    def _checkpoints(self) -> TrainingCheckpoints:
        return TrainingCheckpoints(self._work, self.data_digest)

    def _evaluate(self, shard: int, models: State) -> StoredOutputs:
        evaluator = self.evaluator()
        indices = self.plan.indices(shard)
        chance = self.task.chance(evaluator.network)
        runs = []
        for position, index in enumerate(indices):
            run = evaluator.evaluate_state({name: stacked[position] for name, stacked in models.items()})
            called = f"model of {self.stage}" if self.variation else MODEL_NAMES[self.kind]
            name = f"{called} {index}"
            check_learned(self.competition, name, run.retain_accuracy, chance=chance)
            runs.append(run)
        outputs = StoredOutputs.of_runs(runs)
        metadata = {"data": self.data_digest, "capture": self._levels}
        write_outputs(outputs, self._part_path(shard), metadata=metadata)
        self._checkpoints().clear(indices)
        return outputs

    def has_outputs(self, shard: int) -> bool:
        """Say whether a shard's models were trained and evaluated, on this data."""
        return self._read_part(shard) is not None

    def _read_part(self, shard: int) -> StoredOutputs | None:
        try:
            outputs, metadata = read_stored_outputs(self._part_path(shard))
        except (SplitNotPrepared, DamagedSplit):
            return None
        usable = (
            metadata.get("data") == self.data_digest
            and metadata.get("capture", "") == self._levels
            and len(outputs) == len(self.plan.indices(shard))
        )
        return outputs if usable else None

    @property
    def _levels(self) -> str:
        return " ".join(str(level) for level in self.competition.report.capture_levels)

    def _part_path(self, shard: int) -> Path:
        return self._work / f"outputs-{shard:05d}.safetensors"
