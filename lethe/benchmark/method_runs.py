"""The runs of one method in one cell: from its stored parts on, a part at a time."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.benchmark.plan import CellPlan, MethodPlan
from lethe.benchmark.store import Unit, write_whole
from lethe.competition.file import CompetitionFile
from lethe.errors import InvalidInput, InvalidSubmission
from lethe.evaluation.child_process import ChildRuns
from lethe.evaluation.evaluators import Evaluator, load_evaluator
from lethe.evaluation.image_evaluation import NonFiniteOutputs
from lethe.evaluation.local_check import Failure, explain_failure, stage_files
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import (
    ORIGINAL,
    find_place,
    read_integer_buffers,
    read_original,
    read_probed_references,
    read_stored_outputs,
)
from lethe.evaluation.probes.split_probes import SplitProbes, stored_models
from lethe.evaluation.shard_outputs import RunOutputs, ShardOutputs, join
from lethe.runtime.error_classes import place_beside
from lethe.submission.package import Package, load_package
from lethe.tuning.local_run import SplitRuns

PART_RUNS, PART_S = 32, 60.0  # a part ends after so many runs or seconds; a crash loses at most one part


@dataclass(frozen=True)
class RunEnd:
    """One run's end: a checked safetensors file's bytes, or why there is none."""

    weights: bytes | None
    failure: Failure | None
    wall_time_s: float


class MethodRuns(Protocol):
    """A started process or sandbox that holds a split's data and a method's code.

    backend: what it is called. stage: a folder for originals that its runs can read.
    """

    backend: str
    stage: Path

    def run(self, index: int, *, seed: int, original: Path | None) -> RunEnd:
        """Run once, from `original` or else from the split's original model."""


@dataclass(frozen=True)
class RunPlace:
    """What is run, and on which split."""

    split_dir: Path
    package: Package
    competition: CompetitionFile


OpenRuns = Callable[[RunPlace], AbstractContextManager[MethodRuns]]


@dataclass
class ChildMethodRuns:
    """Runs in a child process, without a sandbox."""

    child: ChildRuns
    stage: Path
    backend: str = "none"

    def run(self, index: int, *, seed: int, original: Path | None) -> RunEnd:
        if original is not None:
            raise InvalidInput("seeds = n_models starts each run from its own original, which only the sandbox can do")
        result = self.child.run(index, seed=seed)
        return RunEnd(result.weights, None if result.weights else explain_failure(result), result.wall_time_s)


@contextmanager
def child_runs(place: RunPlace) -> Iterator[MethodRuns]:
    """Open runs in a child process of their own."""
    limit_s = place.competition.limits.run_wall_time_s or place.competition.limits.wall_time_s
    with tempfile.TemporaryDirectory(prefix="lethe-benchmark-") as name:
        code_dir = stage_files(place.package, Path(name))
        visible, entry = place.split_dir / "visible", place.package.entry_point
        with ChildRuns(visible, code_dir, entry, wall_time_s=limit_s) as child:
            yield ChildMethodRuns(child, Path(name))


def stored_outputs(unit: Unit) -> ShardOutputs | None:
    """Return the outputs of the runs that are stored, or None where there are none."""
    parts = [ShardOutputs.from_bytes(path.read_bytes()) for path in unit.part_files]
    return join(parts) if parts else None


def run_method(
    cell: CellPlan, method: MethodPlan, unit: Unit, split_dir: Path, *, open_runs: OpenRuns, until: float | None
) -> None:
    """Make the runs that are missing; stop at time `until` (of time.monotonic) after the run in progress.

    A failing method leaves `failure.json`, and no more of its runs are made.
    """
    done, wanted = unit.n_runs, cell.competition.n_models
    if done >= wanted or unit.read("failure"):
        return
    try:
        package = load_package(method.files["unlearning.py"].encode(), "unlearning.py", modes=("function",))
    except InvalidSubmission as error:
        _fail(unit, Failure(error.slug, error.detail), run=done)
        return
    place = RunPlace(split_dir, package, cell.competition)
    with open_runs(place) as runs:
        _run_parts(range(done, wanted), runs, place, unit, until=until)


def may_share_a_process(cell: CellPlan, method: MethodPlan) -> bool:
    """Return whether a method's runs may follow one another in a process without a sandbox, and give the same.

    Only the catalogue's own: its files leave nothing behind in a process, which a test checks for each. Not where runs
    have originals of their own, nor where weights are kept.
    """
    settings = cell.competition
    return method.method_id is not None and settings.scoring.setup == "reuse-n-1" and not settings.report.keep_weights


def run_in_one_process(
    cell: CellPlan, method: MethodPlan, unit: Unit, process: SplitRuns, *, until: float | None
) -> None:
    """Make the runs that are missing, a part at a time in a fork of `process`; stop at time `until` after a part.

    Like `run_method`, without its start of a process for each run. The first part is one run: what it takes says how
    many fit into the others.
    """
    done, wanted = unit.n_runs, cell.competition.n_models
    limit_s = cell.competition.limits.run_wall_time_s or cell.competition.limits.wall_time_s
    n_runs, outputs = 1, process.folder / "part.safetensors"
    while done < wanted and not unit.read("failure") and (until is None or time.monotonic() < until):
        started = time.monotonic()
        n_runs = min(n_runs, wanted - done)
        try:
            found = process.run(method.files, runs=n_runs, seed=done, outputs_file=outputs, run_limit_s=limit_s)
        except InvalidInput as error:
            runs = f"run {done}" if n_runs == 1 else f"runs {done} to {done + n_runs - 1}"
            unit.write("failure", {"class": "exception", "message": f"{runs}: {error.detail}", "run": done})
            return
        stored, wall_time_s = read_stored_outputs(outputs)[0], np.array([run["wall_time_s"] for run in found.runs])
        unit.write_part(ShardOutputs(**vars(stored), wall_time_s=wall_time_s).to_bytes(), n_runs=n_runs)
        took_s, unlearning_s = time.monotonic() - started, float(wall_time_s.sum())
        unit.add_times(unlearning_s=unlearning_s, evaluation_s=took_s - unlearning_s)
        unit.write("backend", {"sandbox": "none"})
        done += n_runs
        n_runs = max(1, min(PART_RUNS, int(PART_S * n_runs / took_s)))


def _run_parts(missing: range, runs: MethodRuns, place: RunPlace, unit: Unit, *, until: float | None) -> None:
    evaluator = load_evaluator(place.split_dir)
    part: list[_Done] = []
    part_started = time.monotonic()
    for run in missing:
        if until is not None and time.monotonic() >= until:
            break
        done = _one_run(run, runs, place, evaluator, unit)
        if isinstance(done, Failure):
            _fail(unit, done, run=run)
            break
        part.append(done)
        if len(part) == PART_RUNS or time.monotonic() - part_started > PART_S:
            _store(part, unit, backend=runs.backend)
            part, part_started = [], time.monotonic()
    if part:
        _store(part, unit, backend=runs.backend)


@dataclass(frozen=True)
class _Done:
    outputs: RunOutputs
    wall_time_s: float
    evaluation_s: float


def _one_run(run: int, runs: MethodRuns, place: RunPlace, evaluator: Evaluator, unit: Unit) -> _Done | Failure:
    with own_original(place, run, stage=runs.stage) as (original, numbers):
        end = runs.run(run, seed=run, original=original)
        if end.weights is None:
            return end.failure or Failure("no-weights", "The run gave no weights.")
        started = time.monotonic()
        try:
            outputs = evaluator.evaluate(end.weights, integer_buffers=numbers)
        except NonFiniteOutputs as error:
            return Failure(error.slug, error.detail)
        if run < place.competition.report.keep_weights:
            keep_weights(unit, run, end.weights, split_dir=place.split_dir, integer_buffers=numbers)
        return _Done(outputs, end.wall_time_s, time.monotonic() - started)


@contextmanager
def own_original(
    place: RunPlace, run: int, *, stage: Path
) -> Iterator[tuple[Path | None, "Mapping[str, Tensor] | None"]]:
    """Yield a file with the run's own original model and its whole numbers; None where all runs start from one."""
    if place.competition.scoring.setup == "reuse-n-1":
        yield None, None
        return
    name, position = find_place(Manifest.read(place.split_dir), run)
    path = stage / f"original-{run}.safetensors"
    try:
        path.write_bytes(read_original(place.split_dir, name, position))
        path.chmod(0o444)
        yield path, read_integer_buffers(path)
    finally:
        path.unlink(missing_ok=True)


def _store(part: list[_Done], unit: Unit, *, backend: str) -> None:
    wall_time_s = np.array([done.wall_time_s for done in part])
    arrays = ShardOutputs.of_runs([done.outputs for done in part], wall_time_s=wall_time_s)
    unit.write_part(arrays.to_bytes(), n_runs=len(part))
    unlearning_s, evaluation_s = sum(done.wall_time_s for done in part), sum(done.evaluation_s for done in part)
    unit.add_times(unlearning_s=unlearning_s, evaluation_s=evaluation_s)
    unit.write("backend", {"sandbox": backend})


def _fail(unit: Unit, failure: Failure, *, run: int) -> None:
    where = place_beside(failure.message, file=failure.file, line=failure.line)
    message = f"run {run}: {failure.error_class}{where}: {failure.message}"
    unit.write("failure", {"class": failure.error_class, "message": message, "run": run})


def keep_weights(
    unit: Unit, run: int, weights: bytes, *, split_dir: Path, integer_buffers: Mapping[str, Tensor] | None
) -> None:
    """Keep the weights of a run, a safetensors file.

    integer_buffers: of the run's own original model, where it has one. As in an evaluation, they are never the run's.
    """
    given = read_integer_buffers(split_dir / ORIGINAL) if integer_buffers is None else dict(integer_buffers)
    write_whole(_file(unit, run), safetensors.torch.save(safetensors.torch.load(weights) | given))


def probed_runs(unit: Unit, split_dir: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of level 4 of a method's first runs: of as many as references were probed.

    Raises DamagedSplit naming a file of the split.
    """
    n_models = len(read_probed_references(split_dir)["retrained"]["weight_norm"])
    states = [safetensors.torch.load_file(_file(unit, run)) for run in range(n_models)]
    return SplitProbes.load(split_dir).arrays(states, stored_models(split_dir, "retrained", n_models))


def _file(unit: Unit, run: int) -> Path:
    return unit.folder / f"weights-{run:06d}.safetensors"
