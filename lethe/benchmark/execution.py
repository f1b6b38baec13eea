"""Computes what a benchmark lacks: shared splits, runs and metrics, each once, by any number of processes."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from lethe.benchmark.benchmark_file import Tune
from lethe.benchmark.cell_metrics import compute_method_metrics, compute_reference_metrics
from lethe.benchmark.method_runs import OpenRuns, may_share_a_process, run_in_one_process, run_method
from lethe.benchmark.plan import CellPlan, MethodPlan, Plan
from lethe.benchmark.store import (
    BenchmarkFolder,
    Unit,
    can_be_measured,
    finished_study,
    is_complete,
    measure_cost,
    missing_metrics,
    read_object,
    settled_methods,
    study_file,
    write_object,
)
from lethe.competition.preparation_share import ShardToMake
from lethe.competition.visibility import Visibility
from lethe.errors import AppError, HostFault
from lethe.evaluation.model_outputs import Kind
from lethe.metrics import Side
from lethe.preparation.prepare import begin_split, prepare_shard, prepare_split
from lethe.preparation.step_cache import OnProgress, PreparationProgress, maker
from lethe.tuning.local_run import SplitRuns


class SharedPreparation:
    """One process's part in the preparation of one cell."""

    def __init__(self, cell: CellPlan, folder: BenchmarkFolder, *, device: str) -> None:
        self.cell, self.folder, self.device = cell, folder, device
        self._tried: set[ShardToMake] = set()

    def lead(self, progress: OnProgress) -> None:
        """Prepare the split, sharing the models with whoever helps. The caller holds the cell's lock.

        Raises InvalidDataset, InvalidSplit, UntrainedModel or InvalidCompetitionFile.
        """
        parts = self.cell.competition, Visibility.PUBLIC, self.folder.split_dir(self.cell)
        self._list.unlink(missing_ok=True)
        shards = begin_split(*parts, device=self.device, progress=progress)
        write_object(self._list, {"maker": self._maker, "shards": [asdict(shard) for shard in shards]})
        try:
            while not self._train(shards, progress):
                time.sleep(WAIT_S)
        finally:
            self._list.unlink()
        for shard in shards:
            self._wait_until_left(shard)
        prepare_split(*parts, device=self.device, progress=progress)

    def help(self, *, is_over: Callable[[], bool]) -> None:
        """Train the shards that nobody is at. A failure is left for the leader, which meets it too and reports it.

        is_over: asked before each shard; then no further one is begun.
        """
        with suppress(AppError):
            self._train(self._listed()[::-1], lambda _: None, is_over=is_over)

    def _listed(self) -> list[ShardToMake]:
        """Return what is shared now: nothing before and after, or if models of another torch or device are made."""
        found = read_object(self._list)
        return [ShardToMake(**shard) for shard in found["shards"]] if found.get("maker") == self._maker else []

    def _train(
        self, shards: list[ShardToMake], progress: OnProgress, *, is_over: Callable[[], bool] = lambda: False
    ) -> bool:
        """Train each shard that no other process is at. Return whether all were free."""
        free = [self._train_one(shard, progress) for shard in shards if shard not in self._tried and not is_over()]
        return all(free)

    def _wait_until_left(self, shard: ShardToMake) -> None:
        """Return once no helper is at the shard: who takes its lock afterwards finds no list, and leaves it."""
        while True:
            with self.folder.claimed(self.cell.key, shard.kind, str(shard.position)) as ours:
                if ours:
                    return
            time.sleep(WAIT_S)

    def _train_one(self, shard: ShardToMake, progress: OnProgress) -> bool:
        with self.folder.claimed(self.cell.key, shard.kind, str(shard.position)) as ours:
            if ours and shard in self._listed():
                self._tried.add(shard)
                prepare_shard(
                    self.cell.competition,
                    Visibility.PUBLIC,
                    self.folder.split_dir(self.cell),
                    kind=cast(Kind, shard.kind),
                    shard=shard.position,
                    device=self.device,
                    progress=progress,
                )
        return ours

    @property
    def _maker(self) -> str:
        return maker(self.cell.competition, Visibility.PUBLIC, device=self.device)

    @property
    def _list(self) -> Path:
        return self.folder.cell_dir(self.cell) / "shards.json"


WAIT_S = 1.0
Say = Callable[[str], None]


def processor_s() -> float:
    """Return the processor time of this process and of its children that have ended, in seconds."""
    return sum(os.times()[:4])


class UnfinishedBenchmark(HostFault):
    slug, title = "unfinished-benchmark", "The benchmark is not complete"


@dataclass
class Execution:
    """One process's work on a benchmark. until: of time.monotonic, when to stop; None: when all is done.

    open_runs: for files of the benchmark's author. each_apart: also for the catalogue's methods, whose runs otherwise
    share a process. on_preparation: what hears how far a cell's preparation is, where this process does it.
    """

    plan: Plan
    folder: BenchmarkFolder
    open_runs: OpenRuns
    say: Say
    until: float | None = None
    device: str = "cpu"
    each_apart: bool = False
    on_preparation: Callable[[CellPlan, PreparationProgress], None] = lambda *_: None
    _faults: dict[str, str] = field(default_factory=dict)
    _began: float = field(default_factory=time.time)
    _helped: dict[str, SharedPreparation] = field(default_factory=dict)
    _process: SplitRuns | None = None
    _opened: ExitStack = field(default_factory=ExitStack)

    def run(self) -> None:
        """Compute what is missing and is computed by no other process; wait for what others compute.

        Raises UnfinishedBenchmark at the end, naming what could not be done; all else is done by then.
        """
        if changed := self.folder.remember(self.plan):
            self.say(changed)
        with self._opened:
            while self._pass() and not self._is_over():
                time.sleep(WAIT_S)
        if self._faults:
            listed = "; ".join(f"{name}: {message.rstrip('.')}" for name, message in self._faults.items())
            raise UnfinishedBenchmark(f"not everything could be run: {listed}. `lethe benchmark resume` tries it again")

    def _pass(self) -> bool:
        """Go through all cells once. Return whether another process is at work on something."""
        busy = [self._search_cell(cell) for cell in self.plan.search_cells]
        busy += [self._cell(cell) for cell in self.plan.cells]
        return any(busy)

    def _search_cell(self, cell: CellPlan) -> bool:
        """Search the constants of every method on this split. Return whether another process is at work on some."""
        if (busy := self._preparation(cell)) is not None:
            return busy
        busy_searches = [self._search(cell, method) for method in self.plan.methods if method.searched]
        return any(busy_searches)

    def _search(self, cell: CellPlan, method: MethodPlan) -> bool:
        from lethe.tuning.tuning import make_question, tune  # noqa: PLC0415  needed by few benchmarks

        name = f"{cell.name}, {method.label}"
        if self._is_over() or name in self._faults or finished_study(self.plan, self.folder, cell, method):
            return False
        file, source = study_file(self.plan, self.folder, cell, method), method.files["unlearning.py"]
        file.parent.mkdir(parents=True, exist_ok=True)
        asked = cast(Tune, self.plan.file.tune).plan
        with self.folder.claimed(cell.key, file.stem) as ours:
            if not ours:
                return True
            try:
                question = make_question(method.label, source, self._split(cell), asked, fixed=method.fixed)
                study = tune(
                    question,
                    source,
                    asked,
                    split_dir=self._split(cell),
                    study_file=file,
                    run_limit_s=self.plan.file.run_wall_time_s,
                    process=self._process_on(cell),
                    is_over=self._is_over,
                )
            except AppError as error:
                self._faults[name] = error.detail
                return False
        if study.ended:
            cost = f"{len(study.trials)} trials, {study.work_epochs:.1f} epochs, {study.cpu_time_s:.0f} processor s"
            self.say(f"{name}: {cost}, chosen: trial {study.chosen}")
        return False

    def _preparation(self, cell: CellPlan) -> bool | None:
        """Prepare a cell where it is not. Return None once it is, else whether another process is at it."""
        if cell.name in self._faults or self._is_over():
            return False
        if not self.folder.is_prepared(cell):
            with self.folder.claimed(cell.key) as ours:
                if not ours:
                    own = SharedPreparation(cell, self.folder, device=self.device)
                    self._helped.setdefault(cell.name, own).help(is_over=self._is_over)
                    return True
                if failed := self.folder.cell_failure(cell, since=self._began):  # of a process beside this one
                    self._faults[cell.name] = failed
                    return False
                if not self.folder.is_prepared(cell) and not self._prepare(cell):
                    return False
        return None

    def _cell(self, cell: CellPlan) -> bool:
        if (busy := self._preparation(cell)) is not None:
            return busy
        waits = [self._references(cell)]
        waits += [self._method(cell, each) for each in settled_methods(self.plan, self.folder, cell)]
        return any(waits)

    def _prepare(self, cell: CellPlan) -> bool:
        self.say(f"{cell.name}: preparing")
        started, worked, reported_at = time.monotonic(), processor_s(), 0.0

        def progress(state: PreparationProgress) -> None:
            nonlocal reported_at
            self.on_preparation(cell, state)
            if state.message or time.monotonic() - reported_at > 30.0:
                reported_at = time.monotonic()
                self.say(f"{cell.name}: {state.stage} {state.done:.0f}/{state.total} {state.message}".rstrip())

        try:
            SharedPreparation(cell, self.folder, device=self.device).lead(progress)
        except AppError as error:
            self._faults[cell.name] = error.detail
            self.folder.record_cell_failure(cell, error.detail)
            return False
        self.folder.cell_works(cell)
        seconds = time.monotonic() - started
        self.folder.references(cell).add_times(preparation_s=seconds, preparation_cpu_s=processor_s() - worked)
        self.say(f"{cell.name}: prepared in {seconds:.0f} s")
        return True

    def _references(self, cell: CellPlan) -> bool:
        unit = self.folder.references(cell)
        if not missing_metrics(self.plan, unit, Side.ORACLE) and not missing_metrics(self.plan, unit, Side.ORIGINAL):
            return False
        with self.folder.claimed(cell.key, "references") as ours:
            if ours:
                self._timed(unit, lambda: compute_reference_metrics(self.plan, cell, unit, self._split(cell)))
        return not ours

    def _method(self, cell: CellPlan, method: MethodPlan) -> bool:
        unit, name = self.folder.unit(cell, method), f"{cell.name}, {method.label}"
        if self._is_over() or name in self._faults or self._is_done(unit, method):
            return False
        with self.folder.claimed(cell.key, method.key) as ours:
            if ours and not is_complete(self.plan, unit):
                self._runs_and_metrics(cell, method, unit, name)
            if ours and is_complete(self.plan, unit) and not self._is_done(unit, method):
                self._cost(cell, method, unit, name)
        return not ours

    def _is_done(self, unit: Unit, method: MethodPlan) -> bool:
        costed = bool(unit.read("failure") or unit.read("cost")) or not can_be_measured(method)
        return costed and is_complete(self.plan, unit)

    def _cost(self, cell: CellPlan, method: MethodPlan, unit: Unit, name: str) -> None:
        try:
            measure_cost(unit, method, self._process_on(cell), run_limit_s=self.plan.file.run_wall_time_s)
        except AppError as error:
            self._faults[name] = f"its cost: {error.detail}"

    def _runs_and_metrics(self, cell: CellPlan, method: MethodPlan, unit: Unit, name: str) -> None:
        started = time.monotonic()
        try:
            if may_share_a_process(cell, method) and not self.each_apart:
                run_in_one_process(cell, method, unit, self._process_on(cell), until=self.until)
            else:
                run_method(cell, method, unit, self._split(cell), open_runs=self.open_runs, until=self.until)
        except AppError as error:
            self._faults[name] = error.detail
            return
        finally:
            unit.add_times(all_runs_s=time.monotonic() - started)
        if failure := unit.read("failure"):
            self.say(f"{name}: F: {failure['message']}")
        elif unit.n_runs >= cell.competition.n_models:
            self._timed(unit, lambda: compute_method_metrics(self.plan, cell, unit, self._split(cell)))
            self.say(f"{name}: done in {time.monotonic() - started:.0f} s")

    def _timed(self, unit: Unit, work: Callable[[], None]) -> None:
        started, worked = time.monotonic(), processor_s()
        work()
        unit.add_times(metrics_s=time.monotonic() - started, metrics_cpu_s=processor_s() - worked)

    def _process_on(self, cell: CellPlan) -> SplitRuns:
        """Return the process that holds the cell's split; one at a time is kept."""
        split_dir = self._split(cell)
        if self._process is None or self._process.lost or self._process.split_dir != split_dir:
            self._opened.close()
            self._process = self._opened.enter_context(SplitRuns(split_dir))
        return self._process

    def _split(self, cell: CellPlan) -> Path:
        return self.folder.split_dir(cell)

    def _is_over(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until
