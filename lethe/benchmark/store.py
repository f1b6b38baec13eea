"""The folder of a benchmark: splits, outputs, failures, costs and metrics by the keys of their content.

Files appear whole (written beside, then renamed) and a lock is given back when its process ends, so any number of
processes may work in one folder and each may be killed at any time.

What a run costs is measured in a few runs more, one after another in a process of their own: neither other processes
nor the start of a sandbox count. The constants that `[tune]` chose say which method runs in a cell.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lethe.benchmark.benchmark_file import SCORES
from lethe.benchmark.plan import CellPlan, MethodPlan, Plan, content_key
from lethe.competition.report_section import MetricRequest
from lethe.errors import InvalidInput
from lethe.methods.rendering import set_constants
from lethe.metrics import Side, metric
from lethe.metrics.scoring.attacks.family import SCORER_VERSION
from lethe.tuning.local_run import SplitRuns
from lethe.tuning.study import Study

Json = dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """One method in one cell: the folder of its runs."""

    folder: Path

    @property
    def part_files(self) -> list[Path]:
        """Return the stored parts in the order of their runs."""
        return sorted(self.folder.glob("part-*.safetensors"))

    @property
    def n_runs(self) -> int:
        """Return how many runs are stored; a part's name says how many it holds."""
        return sum(int(path.stem.rsplit("-", 1)[1]) for path in self.part_files)

    def write_part(self, content: bytes, *, n_runs: int) -> None:
        """Store the outputs of the next `n_runs` runs."""
        write_whole(self.folder / f"part-{self.n_runs:06d}-{n_runs}.safetensors", content)

    def read(self, name: str) -> Json:
        """Return a stored object, empty if there is none."""
        return read_object(self.folder / f"{name}.json")

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        write_object(self.folder / f"{name}.json", content)

    def add_times(self, **seconds: float) -> None:
        """Add to the times of the unit's stages, in seconds."""
        kept = self.read("times")
        self.write("times", kept | {name: kept.get(name, 0.0) + value for name, value in seconds.items()})

    def forget_failure(self) -> None:
        (self.folder / "failure.json").unlink(missing_ok=True)


class BenchmarkFolder:
    """The folder that `lethe benchmark run --out` names."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def cell_dir(self, cell: CellPlan) -> Path:
        return self.root / "cells" / cell.key

    def split_dir(self, cell: CellPlan) -> Path:
        return self.cell_dir(cell) / "split"

    def is_prepared(self, cell: CellPlan) -> bool:
        return (self.split_dir(cell) / "manifest.json").is_file()

    def cell_failure(self, cell: CellPlan, *, since: float = 0.0) -> str:
        """Return why the last attempt to prepare the cell failed, or nothing.

        since: only if it failed after this moment (of time.time()).
        """
        path = self.cell_dir(cell) / "failure.json"
        content = read_object(path)
        return str(content["message"]) if content and path.stat().st_mtime >= since else ""

    def record_cell_failure(self, cell: CellPlan, message: str) -> None:
        write_object(self.cell_dir(cell) / "failure.json", {"message": message})

    def cell_works(self, cell: CellPlan) -> None:
        (self.cell_dir(cell) / "failure.json").unlink(missing_ok=True)

    def unit(self, cell: CellPlan, method: MethodPlan) -> Unit:
        return Unit(self.cell_dir(cell) / "runs" / method.key)

    def references(self, cell: CellPlan) -> Unit:
        """Return where the metrics of the exact retraining and of the original model are kept."""
        return Unit(self.cell_dir(cell) / "references")

    @contextmanager
    def claimed(self, *names: str) -> Iterator[bool]:
        """Yield whether this process has the lock of that name now; another one may hold it."""
        path = self.root / "locks" / ("-".join(names) + ".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def remember(self, plan: Plan) -> str:
        """Keep the benchmark file beside its results. Return a sentence if it is not what it was, else nothing."""
        path = self.root / "benchmarks" / f"{plan.file.slug}.json"
        kept = read_object(path)
        cells = {cell.name: cell.key for cell in plan.cells}
        methods = {method.label: method.key for method in plan.methods}
        content = {"file": str(plan.path), "sha256": plan.file_sha256, "text": plan.text}
        write_object(path, content | {"cells": cells, "methods": methods})
        return describe_change(kept, cells, methods)


def describe_change(kept: Mapping[str, Any], cells: Mapping[str, str], methods: Mapping[str, str]) -> str:
    """Return a sentence on what is new in cells and methods, both key by name; nothing where nothing changed.

    kept: the `cells` and `methods` of the time before, empty where there was none.
    """
    if not kept or (kept["cells"] == cells and kept["methods"] == methods):
        return ""
    new_cells = [name for name, key in cells.items() if key not in kept["cells"].values()]
    new_methods = [name for name, key in methods.items() if key not in kept["methods"].values()]
    parts = [f"{kind} {', '.join(names)}" for kind, names in (("cells", new_cells), ("methods", new_methods)) if names]
    changed = "; new or different: " + "; ".join(parts) if parts else "; nothing is new"
    return f"the benchmark or a file that it names changed since the last run{changed}. What is equal is kept."


def require_folder(root: Path) -> BenchmarkFolder:
    """Return the folder of a benchmark that was run. Raises InvalidInput if it is none."""
    if not (root / "benchmarks").is_dir():
        raise InvalidInput(f"{root} holds no benchmark's results: `lethe benchmark run FILE --out {root}` makes them")
    return BenchmarkFolder(root)


def write_object(path: Path, content: Mapping[str, Any]) -> None:
    write_whole(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def read_object(path: Path) -> Json:
    try:
        content: Json = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return content


def write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


REFERENCES = {"exact retraining": Side.ORACLE, "original model": Side.ORIGINAL}


def metrics_file(subject: Side) -> str:
    """Return the name of the file with the metrics of these models."""
    return f"metrics-{subject.value}"


def request_key(request: MetricRequest) -> str:
    """Return under which key a metric is kept: its id and a hash of its parameters and version."""
    version = SCORER_VERSION if request.id in SCORES else metric(request.id).version
    return f"{request.id}-{content_key([request.parameters, version])[:8]}"


def missing_metrics(plan: Plan, unit: Unit, subject: Side = Side.UNLEARNED) -> list[MetricRequest]:
    """Return the metrics that the plan asks for and the unit does not hold."""
    kept = unit.read(metrics_file(subject))
    return [request for request in plan.file.metrics if request_key(request) not in kept]


def is_complete(plan: Plan, unit: Unit) -> bool:
    """Return whether a method has all its runs and metrics in a cell, or failed there."""
    if unit.read("failure"):
        return True
    return unit.n_runs >= plan.file.n_models and not missing_metrics(plan, unit)


RUNS = 3
Z_95 = 1.959964


def can_be_measured(method: MethodPlan) -> bool:
    """Return whether the method may run without a sandbox: one of the catalogue, or one that was searched so."""
    return method.method_id is not None or method.searched


def measure_cost(unit: Unit, method: MethodPlan, process: SplitRuns, *, run_limit_s: float) -> None:
    """Run the method and keep what its runs and one retraining cost. Raises InvalidInput if it fails."""
    done = process.run(method.files, runs=RUNS, run_limit_s=run_limit_s)
    runs = {name: [run[name] for run in done.runs] for name in ("cpu_time_s", "work_epochs")}
    retraining = {"retraining_cpu_s": done.retraining_cpu_s, "retraining_epochs": done.retraining_epochs}
    unit.write("cost", {**runs, **retraining})


def cost_values(kept: Json) -> dict[str, Json]:
    """Return `rte_cpu` and `rte_work`: a retraining's processor time and work over a run's, with 95 % intervals.

    No value where a run costs nothing or retraining's cost is unknown. kept: empty where nothing was measured.
    """
    pairs = {"rte_cpu": ("retraining_cpu_s", "cpu_time_s"), "rte_work": ("retraining_epochs", "work_epochs")}
    return {name: _ratio(kept[above], kept[below]) for name, (above, below) in pairs.items() if kept}


def _ratio(retraining: float | None, runs: list[float]) -> Json:
    if retraining is None or min(runs) <= 0.0:
        return {"value": None}
    ratios = retraining / np.asarray(runs)
    half = Z_95 * float(ratios.std(ddof=1)) / np.sqrt(len(runs))
    middle = float(ratios.mean())
    return {"value": middle, "interval": [middle - half, middle + half]}


TUNED, UNTUNED, NOTHING_TO_TUNE = "tuned", "untuned", "nothing to tune"


def study_file(plan: Plan, folder: BenchmarkFolder, search: CellPlan, method: MethodPlan) -> Path:
    """Return where a method's search on a split is kept: under a key of its text and of what the search gets."""
    tune = plan.file.tune.model_dump(mode="json", exclude={"searches"}) if plan.file.tune else {}
    key = content_key([method.key, list(method.fixed), tune])
    return folder.cell_dir(search) / "studies" / f"{key}.json"


def finished_study(plan: Plan, folder: BenchmarkFolder, search: CellPlan, method: MethodPlan) -> Study | None:
    """Return a method's search on a split, None while it has not ended."""
    path = study_file(plan, folder, search, method)
    study = Study.read(path) if path.is_file() else None
    return study if study is not None and study.ended else None


def settled_method(plan: Plan, folder: BenchmarkFolder, cell: CellPlan, method: MethodPlan) -> MethodPlan | None:
    """Return the method with the constants that it has in this cell; None while they are searched.

    Where every trial failed, the constants are the file's own.
    """
    if not method.searched:
        return method
    study = finished_study(plan, folder, plan.searches[cell.key], method)
    if study is None:
        return None
    if study.best is None:
        return method
    settings = study.best.settings
    files = {name: set_constants(text, settings, owner=method.label) for name, text in method.files.items()}
    return replace(method, files=files, key=content_key(files), constants={**method.constants, **settings})


def settled_methods(plan: Plan, folder: BenchmarkFolder, cell: CellPlan) -> list[MethodPlan]:
    """Return the methods whose constants in this cell are known."""
    found = (settled_method(plan, folder, cell, method) for method in plan.methods)
    return [method for method in found if method is not None]


def tuning_facts(plan: Plan, folder: BenchmarkFolder, cell: CellPlan, method: MethodPlan) -> Json:
    """Return what a row says of its constants: `state`, and of a search its cost, its choice and the fresh scores."""
    if not method.searched:
        return {"state": UNTUNED if method.has_ranges else NOTHING_TO_TUNE}
    study = finished_study(plan, folder, plan.searches[cell.key], method)
    if study is None or study.best is None:
        return {"state": UNTUNED, "reason": "every trial failed" if study else "not searched yet"}
    own = study.trials[0].fresh
    return {
        "state": TUNED,
        "settings": dict(study.best.settings),
        "objective": study.question.objective,
        "trials": len(study.trials),
        "failed_trials": sum(bool(trial.failure) for trial in study.trials),
        "chosen_trial": study.chosen,
        "work_epochs": study.work_epochs,
        "cpu_time_s": study.cpu_time_s,
        "fresh": None if study.best.fresh is None else study.best.fresh.value,
        "own_fresh": None if own is None else own.value,
    }
