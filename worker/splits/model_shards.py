"""Sets of N models, trained and evaluated a shard at a time; each model is a function of (split, index) alone."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.guest.networks import build
from server.competitions.config_file import CompetitionFile
from worker.inference import SplitEvaluator
from worker.splits.checkpoints import TrainingCheckpoints
from worker.splits.errors import DamagedSplit, SplitNotPrepared
from worker.splits.files import read_tensors, write_tensors
from worker.splits.outputs import OUTPUT_PATHS, Kind, StoredOutputs, read_stored_outputs
from worker.splits.quality import check_learned
from worker.splits.seeds import derive_seeds
from worker.splits.train_models import train_models
from worker.splits.training import State, TrainingJob
from worker.splits.workspace import OnProgress, Progress

STAGES: dict[Kind, str] = {"retrained": "retrained models", "oracle": "oracle", "originals": "original models"}
MODEL_NAMES: dict[Kind, str] = {"retrained": "retrained model", "oracle": "oracle model", "originals": "original model"}
MODELS_PER_SHARD = 64
SHARD_BYTES = 2**30


@dataclass(frozen=True)
class ShardPlan:
    """How N models are laid into files: at most 64 in one, and about 1 GiB."""

    n_models: int
    models_per_shard: int

    @classmethod
    def of(cls, network: dict[str, Any], n_models: int) -> "ShardPlan":
        model_bytes = sum(value.nbytes for value in build(network).state_dict().values())
        return cls(n_models, max(1, min(MODELS_PER_SHARD, SHARD_BYTES // model_bytes)))

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
    """One set of N models (the retrained ones, the oracle's, or the runs' own originals) of one split."""

    split_dir: Path
    kind: Kind
    plan: ShardPlan
    job: TrainingJob
    seed_words: tuple[str, ...]
    competition: CompetitionFile
    data_digest: str
    evaluator: Callable[[], SplitEvaluator]
    progress: OnProgress

    def make(self, shard: int) -> dict[str, Any]:
        """Train a shard's models, store them, evaluate them and check that each has learnt.

        Return which models the file holds, where runs look theirs up.
        """
        self._evaluate(shard, self._train(shard, store=True))
        indices = self.plan.indices(shard)
        return {"first_model": indices.start, "n_models": len(indices)} if self.kind == "originals" else {}

    def write_outputs(self) -> dict[str, Any]:
        """Write the outputs of all N models, training or evaluating only the shards that have none yet."""
        parts = [self.outputs(shard) for shard in range(self.plan.n_shards)]
        outputs = StoredOutputs.joined(parts)
        outputs.write(self.split_dir / OUTPUT_PATHS[self.kind])
        return {
            "mean_retain_accuracy": float(outputs.retain_accuracy.mean()),
            "mean_test_accuracy": float(outputs.test_accuracy.mean()),
        }

    def outputs(self, shard: int) -> StoredOutputs:
        """Return the outputs of one shard's models: those kept, or of the stored models, or of newly trained ones."""
        part = self._read_part(shard)
        if part is not None:
            return part
        if self.kind == "oracle":
            return self._evaluate(shard, self._train(shard, store=False))
        return self._evaluate(shard, read_tensors(self.split_dir / self.plan.checkpoint_path(self.kind, shard)))

    def _train(self, shard: int, *, store: bool) -> State:
        indices = self.plan.indices(shard)
        model_seeds = derive_seeds(*self.seed_words, self.kind, indices=indices)
        checkpoints = TrainingCheckpoints(self.split_dir / "work" / self.kind, self.data_digest)
        done = indices.start
        epochs = self.job.recipe.epochs
        finished = 0

        def on_epoch(n_models: int) -> None:
            nonlocal finished
            finished += n_models
            self.progress(Progress(STAGES[self.kind], done + finished // epochs, self.plan.n_models))

        seeds = dict(zip(indices, model_seeds, strict=True))
        state = train_models(self.job, seeds, checkpoints=checkpoints, on_epoch=on_epoch)
        if store:
            write_tensors(self.split_dir / self.plan.checkpoint_path(self.kind, shard), state)
            checkpoints.clear(indices)
        return state

    def _evaluate(self, shard: int, models: State) -> StoredOutputs:
        evaluator = self.evaluator()
        indices = self.plan.indices(shard)
        runs = []
        for position, index in enumerate(indices):
            run = evaluator.evaluate_state({name: stacked[position] for name, stacked in models.items()})
            name = f"{MODEL_NAMES[self.kind]} {index}"
            check_learned(self.competition, name, run.retain_accuracy, n_classes=self.job.n_classes)
            runs.append(run)
        outputs = StoredOutputs.of_runs(runs)
        outputs.write(self._part_path(shard), metadata={"data": self.data_digest})
        return outputs

    def _read_part(self, shard: int) -> StoredOutputs | None:
        try:
            outputs, metadata = read_stored_outputs(self._part_path(shard))
        except (SplitNotPrepared, DamagedSplit):
            return None
        usable = metadata.get("data") == self.data_digest and len(outputs) == len(self.plan.indices(shard))
        return outputs if usable else None

    def _part_path(self, shard: int) -> Path:
        return self.split_dir / "work" / self.kind / f"outputs-{shard:05d}.safetensors"
