"""Runs an entry of published results again: from the competition's file, its seeds and the entry's code alone.

The split is prepared on this machine, or named. Nothing of the instance that published is asked.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from pydantic import ValidationError

from lethe.benchmark.method_runs import MethodRuns, RunPlace, own_original
from lethe.client import bundle
from lethe.competition.file import CompetitionFile
from lethe.competition.section import read_stored
from lethe.competition.task import task_name
from lethe.competition.visibility import Visibility
from lethe.data.datasets.registry import PATHS, datasets_beside
from lethe.errors import HostFault, InvalidInput, Violation
from lethe.evaluation.evaluators import Evaluator, load_evaluator
from lethe.evaluation.manifest import MANIFEST
from lethe.evaluation.ranking import ORACLE, score_outputs, secret_attack_seed
from lethe.evaluation.shard_outputs import RunOutputs, ShardOutputs
from lethe.metrics.scoring.attacks.family import SCORER_VERSION
from lethe.metrics.scoring.score import ModelOutputs
from lethe.preparation.prepare import prepare_split
from lethe.runtime.error_classes import OF_THE_MACHINE
from lethe.submission.package import Package, load_package
from server.evaluations.claimed_shard import run_seed
from worker.evaluation.benchmark_runs import sandbox_runs
from worker.evaluation.replay import not_repeated
from worker.evaluation.scoring_job import compared_with, oracle_score, rank_outputs

OnStage = Callable[[str], None]


@dataclass(frozen=True)
class Published:
    """One score of a bundle, and what it takes to compute it again."""

    entry_id: str
    task: str
    visibility: Visibility
    file: CompetitionFile
    package: Package
    receipt: dict[str, Any]

    @property
    def score(self) -> float:
        bits = self.receipt["score"]["final_score_bits"]
        return float.fromhex(bits) if bits else float(self.receipt["score"]["final_score"])


@dataclass
class BundleReplay:
    """What came of it. score: None if a run failed. differences: what computes otherwise here, as sentences."""

    published: Published
    score: float | None = None
    runs: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether the score has the same bits."""
        return self.score is not None and self.score.hex() == self.published.score.hex()


def read_published(folder: Path, entry_id: str, *, task: str, visibility: Visibility) -> Published:
    """Return what a bundle says of one score. Raises InvalidInput for what is not in it, or cannot be run again."""
    entry = bundle.entry_of(folder, entry_id)
    parts = {part["task"]: part for part in entry["parts"] if visibility.value in part["scores"]}
    chosen = task or (next(iter(parts)) if len(parts) == 1 else "")
    if chosen not in parts:
        there = ", ".join(filter(None, parts)) or ("this entry has none" if parts else f"no {visibility} score")
        wrong = f"must name a task in which {entry['id']} has a score on the {visibility} split: {there}"
        raise InvalidInput(f"--task {wrong}", violations=(Violation("task", wrong, task),))
    if entry["mode"] == "notebook":
        raise InvalidInput(
            f"{entry['id']} is a notebook that runs once for all models; only its own instance replays it"
        )
    receipt = bundle.read(folder, parts[chosen]["scores"][visibility.value]["receipt"])
    file = _file(folder, chosen)
    package = load_package(
        (folder / entry["code"]).read_bytes(),
        entry["filename"],
        modes=file.submissions.modes,
        libraries=file.submissions.libraries,
        task=chosen,
    )
    return Published(entry["id"], chosen, visibility, file, package, receipt)


def replay(published: Published, folder: Path, split_dir: Path, *, backend: str, on_stage: OnStage) -> BundleReplay:
    """Prepare the split of the bundle in `folder` unless it is there, run the entry, and score it."""
    file, again = published.file, BundleReplay(published, differences=_unlike(published))
    if not (split_dir / MANIFEST).is_file():
        on_stage(f"Preparing the {published.visibility} split: {2 * file.n_models + 1} models.")
        with datasets_beside(folder / bundle.COMPETITION):
            prepare_split(file, published.visibility, split_dir)
    on_stage(f"Running {published.entry_id} {file.n_models} times.")
    evaluator, place = load_evaluator(split_dir), RunPlace(split_dir, published.package, file)
    outputs: list[RunOutputs] = []
    seconds: list[float] = []
    with sandbox_runs(backend) as open_runs, open_runs(place) as runs:
        for run in range(file.n_models):
            started = time.monotonic()
            output = _one_run(published, place, runs, evaluator, run=run)
            if isinstance(output, str):
                again.differences.append(f"run {run} failed now: {output}")
                return again
            outputs.append(output)
            seconds.append(time.monotonic() - started)
            again.runs += 1
    again.score = _score(published, split_dir, ShardOutputs.of_runs(outputs, wall_time_s=np.array(seconds)))
    return again


def _file(folder: Path, task: str) -> CompetitionFile:
    data = bundle.read(folder, bundle.COMPETITION)
    of_task = next((each for each in data["tasks"] if task_name(each["slug"]) == task), data) if task else data
    if "seed" not in of_task["splits"]:
        withheld = bundle.read(folder, "data.json")["seeds_withheld"]
        raise InvalidInput(f"The bundle has no seed of the splits, so no entry can be run again. {withheld}")
    try:
        file = read_stored(CompetitionFile, of_task)
    except ValidationError as error:
        raise InvalidInput(
            f"{folder} holds a competition file that is not valid: {error.errors()[0]['msg']}"
        ) from error
    _check_inside(file)
    return file


def _check_inside(file: CompetitionFile) -> None:
    """Raise InvalidInput for data outside the bundle: who published it may name no other folder of this machine."""
    for name in PATHS:
        value = str(file.dataset.options.get(name, ""))
        if value.startswith(("/", "~")) or ".." in PurePath(value).parts:
            wrong = f"must be a path inside the bundle, without '..', was {value!r}"
            raise InvalidInput(f"dataset.options.{name} {wrong}", violations=(Violation(name, wrong, value),))


def _one_run(
    published: Published, place: RunPlace, runs: MethodRuns, evaluator: Evaluator, *, run: int
) -> RunOutputs | str:
    """Return a run's outputs, or why there are none. Raises HostFault where a limit of this machine ended the run."""
    seed = run_seed(
        place.competition.slug, published.visibility.value, split_seed=place.competition.splits.seed, run=run
    )
    with own_original(place, run, stage=runs.stage) as (original, numbers):
        end = runs.run(run, seed=seed, original=original)
        if end.failure is not None and end.failure.error_class in OF_THE_MACHINE:
            raise HostFault(not_repeated(run, end.failure.error_class, end.failure.message))
        if end.weights is None:
            return end.failure.message if end.failure else "it gave no weights"
        return evaluator.evaluate(end.weights, integer_buffers=numbers)


def _score(published: Published, split_dir: Path, outputs: ShardOutputs) -> float:
    scoring = published.file.scoring
    unlearned = ModelOutputs(outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy)
    file, visibility = published.file, published.visibility
    seed = secret_attack_seed(file, visibility, published.receipt["submission"]["sha256"])
    score = score_outputs(unlearned, compared_with(split_dir, "retrained"), scoring=scoring, attack_seed=seed)
    oracle = oracle_score(split_dir, "", scoring, secret_attack_seed(file, visibility, ORACLE))
    return rank_outputs(
        file, score, outputs, oracle=oracle, split_dir=split_dir, scoring=scoring, attack_seed=seed
    ).value


def _unlike(published: Published) -> list[str]:
    then = published.receipt["score"]["scorer_version"]
    return [f"the scorer's version was {then}, is {SCORER_VERSION}"] if then != SCORER_VERSION else []
