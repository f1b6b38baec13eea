"""What the steps of one split share, and how each part of it is made."""

import time
from dataclasses import replace
from functools import cached_property
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import SharedBySets, SplitReport
from lethe.competition.visibility import Visibility
from lethe.data import seeds
from lethe.data.files import read_json, write_json, write_tensors, write_text
from lethe.data.forget_sets import Cut
from lethe.data.stored_sets import SET_PATHS, write_true_labels
from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.image_evaluation import load_original
from lethe.evaluation.manifest import NETWORK_PATH as NETWORK
from lethe.evaluation.manifest import EvaluationSettings
from lethe.evaluation.model_outputs import ORIGINAL, ORIGINAL_OUTPUTS, Kind, write_outputs
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.metrics.scoring.protocols import EvaluationSetup, SetupPlan
from lethe.preparation.model_shards import ModelShards, ShardPlan, models_per_shard
from lethe.preparation.public_sample import write_sample
from lethe.preparation.step_cache import OnProgress, PreparationProgress, Step, Workspace, fingerprint, maker
from lethe.preparation.task_kinds import task_preparation
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.many_models import ENSEMBLE_SIZE, can_stack, train_or_resume, train_stacked
from lethe.training.trainer import Job, TrainingJob, check_learned

TRAINED_ON: dict[Kind, tuple[str, ...]] = {
    "retrained": ("retain",),
    "oracle": ("retain",),
    "originals": ("retain", "forget"),
}
REPORT, REPORT_PAGE = "report.json", "report.html"
PAIR_COLUMNS = ["sets", "same image", "same person", "exact duplicates", "near-duplicates", "most similar (ids)"]
TIMED_EPOCHS = 4  # where models are stacked; of these, what comes before the end of the first is not counted


class SplitParts:
    """The parts of one split in the making: read where they are stored, made where a step asks for it."""

    def __init__(
        self, competition: CompetitionFile, visibility: Visibility, out: Path, *, device: str, progress: OnProgress
    ) -> None:
        self.competition, self.visibility, self.out = competition, visibility, out
        self.task = task_preparation(competition.task.kind)
        self.device = device
        self.progress = progress
        self.workspace = Workspace(
            out,
            fingerprint=fingerprint(competition, visibility),
            maker=maker(competition, visibility, device=device),
            progress=progress,
        )

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The capture levels that the competition's metrics need."""
        return self.competition.report.capture_levels

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The sets of N models that this competition needs."""
        return ("retrained", "oracle", "originals") if self.has_originals else ("retrained", "oracle")

    @property
    def has_originals(self) -> bool:
        """Whether runs start from original models of their own."""
        setup = EvaluationSetup(self.competition.scoring.setup)
        return SetupPlan(setup, n_models=self.competition.n_models).n_original > 1

    @cached_property
    def dataset(self) -> Any:
        return self.task.open_dataset(self.competition)

    @cached_property
    def cut(self) -> Cut:
        return self.task.cut(self.dataset, self.competition, self.visibility)

    @cached_property
    def network(self) -> dict[str, Any]:
        return dict(read_json(self.out / NETWORK))  # as written: a shard needs no dataset, and may have none

    @cached_property
    def plan(self) -> ShardPlan:
        values = self.workspace.run(Step("plan", (), self._make_plan))
        return ShardPlan(self.competition.n_models, values["models_per_shard"], values["model_s"])

    @cached_property
    def sets(self) -> dict[str, Any]:
        return {name: self.task.read_set(self.out / SET_PATHS[name]) for name in ("retain", "forget", "test")}

    @property
    def evaluation(self) -> EvaluationSettings:
        values = self.workspace.run(Step("batch-size", (), self._find_batch_size))
        return EvaluationSettings(batch_size=values["batch_size"], precision=self._precision, capture=self.levels)

    @cached_property
    def evaluator(self) -> Evaluator:
        return self.task.make_evaluator(self.out, self.network, self.sets, device=self.device, settings=self.evaluation)

    @property
    def _precision(self) -> Any:
        return self.competition.training.precision if self.device != "cpu" else "float32"

    @property
    def _seed_words(self) -> tuple[str, ...]:
        """Whoever knew these words could train the very models that a submission is compared with."""
        return self.competition.slug, self.visibility, str(self.competition.splits.seed)

    def _seed(self, *words: str | int) -> int:
        return seeds.derive_seed(*self._seed_words, *words)

    def _seeds(self) -> dict[str, Any]:
        prefix = f"{self.competition.slug}/{self.visibility}/<splits.seed>"
        of_sets: dict[str, str] = {kind: f"words {prefix}/{kind}/<index>" for kind in self.kinds}
        return {"scheme": seeds.SCHEME, "original": self._seed("original", 0), **of_sets}

    def _make_data(self) -> dict[str, Any]:
        write_json(self.out / NETWORK, self.task.describe_network(self.competition, self.dataset))
        self.task.write_data(self.out, self.competition, self.dataset, self.cut)
        self.workspace.require_as_published(SET_PATHS.values())
        self.__dict__.pop("sets", None)
        report = self.task.report(self.dataset, self.competition, self.cut, self.visibility)
        write_json(self.out / REPORT, report.model_dump(mode="json"))
        write_text(self.out / REPORT_PAGE, report_page(report))
        return {"sizes": {name: len(indices) for name, indices in self.cut.sets()}}

    def _make_sample(self) -> None:
        parts = self.task, self.dataset, self.cut
        write_sample(self.out, self.competition, *parts, network=self.network, device=self.device)

    def _answer_sample(self) -> None:
        self.task.write_sample_answers(self.out, self.competition, self.dataset, device=self.device)

    def _job(self, *names: str, competition: CompetitionFile | None = None) -> Job:
        sets = [self.sets[name] for name in names]
        return self.task.make_job(self.out, competition or self.competition, self.network, sets, device=self.device)

    def _make_original(self) -> dict[str, Any]:
        job = self._job("retain", "forget")
        digest = self.workspace.digest((NETWORK, SET_PATHS["retain"], SET_PATHS["forget"]))
        checkpoints = TrainingCheckpoints(self.workspace.work_dir / "original", digest)
        done = 0

        def on_epoch(n: int) -> None:
            nonlocal done
            done += n
            self.progress(PreparationProgress("original model", done, job.recipe.epochs))

        state = train_or_resume(job, 0, self._seed("original", 0), checkpoints=checkpoints, on_epoch=on_epoch)
        accuracy = self.task.training_accuracy(job, state)
        check_learned(self.competition, "the original model", accuracy, chance=self.task.chance(self.network))
        write_tensors(self.out / ORIGINAL, state)
        return {"train_accuracy": accuracy}

    def _find_batch_size(self) -> dict[str, Any]:
        given: dict[str, Any] = {"device": self.device, "precision": self._precision}
        return {"batch_size": self.task.batch_size(self.network, self.sets, **given)}

    def _make_plan(self) -> dict[str, Any]:
        """Decide which models go into one file; later calls keep to it, as the files that there are do."""
        model_s = self.task.training_seconds(self.network, self.competition, self.sets["retain"], device=self.device)
        per_shard = models_per_shard(self.network, self.competition.training, model_s=model_s, device=self.device)
        return {"model_s": round(model_s, 6), "models_per_shard": per_shard}

    def shards(self, kind: Kind) -> ModelShards:
        """Return one set of N models, ready to be trained and evaluated by the shard."""
        return ModelShards(
            split_dir=self.out,
            kind=kind,
            task=self.task,
            plan=self.plan,
            make_job=lambda: self._job(*TRAINED_ON[kind]),
            seed_words=self._seed_words,
            competition=self.competition,
            data_digest=self.workspace.digest((NETWORK, *(SET_PATHS[name] for name in self.sets))),
            evaluator=lambda: self.evaluator,
            progress=self.progress,
        )

    def _make_true_labels(self) -> None:
        write_true_labels(self.out, self.dataset, self.cut)

    def _write_original_outputs(self) -> None:
        outputs = StoredOutputs.of_runs([self.evaluator.evaluate_state(load_original(self.out))])
        write_outputs(outputs, self.out / ORIGINAL_OUTPUTS)


def measure_retraining(job: Job, seed: int) -> dict[str, float]:
    """Return what one retraining takes, in seconds: the basis of a run's time limit.

    retraining_time_s: by the clock, in the plain loop. retraining_cpu_s: the same of the processor, on all its threads;
    a device's is not counted. fastest_cpu_s: the least that is known, which is the plain loop's, or a model's share of
    stacked training, where a step costs next to nothing beyond its arithmetic; of the plain loop, which then only has
    to be known to be slower, some epochs are measured.
    """
    is_stacked = isinstance(job, TrainingJob) and can_stack(job)
    epochs = min(job.recipe.epochs, TIMED_EPOCHS) if is_stacked else job.recipe.epochs
    started, cpu_started = time.perf_counter(), time.process_time()
    training = job.start(seed)
    for _ in range(epochs):
        training.run_epoch()
    if job.device.type == "cuda":
        torch.cuda.synchronize()
    whole = job.recipe.epochs / epochs
    spent = {
        "retraining_time_s": whole * (time.perf_counter() - started),
        "retraining_cpu_s": whole * (time.process_time() - cpu_started),
    }
    spent["fastest_cpu_s"] = spent["retraining_cpu_s"]
    if isinstance(job, TrainingJob) and is_stacked:
        spent["fastest_cpu_s"] = min(spent["fastest_cpu_s"], _stacked_model_s(job))
    return {name: round(seconds, 4) for name, seconds in spent.items()}


def _stacked_model_s(job: TrainingJob) -> float:
    """Return a model's share of the processor seconds of stacked training, by the quickest of a few epochs."""
    few = job.recipe.model_copy(update={"epochs": TIMED_EPOCHS})
    ends: list[float] = []
    seeds = range(ENSEMBLE_SIZE)
    train_stacked(replace(job, recipe=few), seeds, on_epoch=lambda _: ends.append(time.process_time()))
    epoch_s = min(after - before for before, after in pairwise(ends))
    return job.recipe.epochs * epoch_s / ENSEMBLE_SIZE


def report_page(report: SplitReport) -> str:
    """Return the report as one HTML page that needs nothing else."""
    title = f"{report.competition}: {report.visibility} split"
    sets = list(report.images)
    sizes = [[name, report.images[name], report.persons[name]] for name in sets]
    classes = [[label, *(report.classes[name][label] for name in sets)] for label in report.class_names]
    return _PAGE.format(
        title=escape(title),
        sizes=_table(["set", "images", "persons"], sizes),
        classes=_table(["class", *sets], classes),
        pairs=_table(PAIR_COLUMNS, [_pair_row(pair) for pair in report.pairs]),
    )


def _pair_row(pair: SharedBySets) -> list[Any]:
    similar = ", ".join(f"{left} ~ {right}" for left, right, _ in pair.examples[:5])
    counts = pair.shared_images, pair.shared_persons, pair.exact_duplicates, pair.near_duplicates
    return [" / ".join(pair.sets), *counts, similar]


def _table(head: list[str], rows: list[list[Any]]) -> str:
    first = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ padding: .25rem .75rem; border-bottom: 1px solid #ccc; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
</style></head><body><h1>{title}</h1>
<h2>Sets</h2>{sizes}
<h2>Images of each class</h2>{classes}
<h2>What sets share</h2>
<p>Near-duplicates are images whose grey 8x8 thumbnails correlate at 0.995 or more. None may be shared between retain
and forget, or between hidden test and the rest, if the score is to mean what it says.</p>{pairs}
</body></html>
"""
