"""All that a benchmark's folder holds, as one object of plain values, and its numbers as arrays by cell and method.

Tables, figures, reports and checks read it. No torch: a report is made wherever its folder lies.
"""

import gzip
import hashlib
import json
import platform
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import lethe
from lethe.benchmark.benchmark_file import SCORES, BenchmarkFile
from lethe.benchmark.plan import CellPlan, Plan
from lethe.benchmark.store import (
    REFERENCES,
    TUNED,
    BenchmarkFolder,
    Json,
    cost_values,
    metrics_file,
    read_object,
    request_key,
    settled_method,
    tuning_facts,
    write_whole,
)
from lethe.competition.file import CompetitionFile
from lethe.competition.report_section import MetricRequest
from lethe.errors import InvalidInput
from lethe.metrics import Side, metric
from lethe.metrics.core.arrays import Bool, Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput


@dataclass(frozen=True, eq=False)
class BenchmarkResults:
    """values: metric -> shape (n_cells, n_methods), NaN where missing. standard_errors: same, for some metrics.

    failed: bool, shape (n_cells, n_methods); a failed method has no value in that cell. None: nothing failed.
    references: methods that are shown and not ranked, such as the original and the retrained models.
    Raises InvalidMetricInput for other shapes, names that occur twice or unknown references.
    """

    cells: tuple[str, ...]
    methods: tuple[str, ...]
    values: Mapping[str, npt.ArrayLike]
    standard_errors: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    failed: npt.ArrayLike | None = None
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check names and shapes."""
        for names in (self.cells, self.methods):
            if len(set(names)) != len(names) or not names:
                raise InvalidMetricInput(f"names must be there and differ, not {names}")
        unknown = set(self.references) - set(self.methods)
        if unknown:
            raise InvalidMetricInput(f"references are not among the methods: {', '.join(sorted(unknown))}")
        for name, values in (*self.values.items(), *self.standard_errors.items()):
            self._shaped(values, name)
        if self.failed is not None:
            self._shaped(self.failed, "failed")

    @property
    def failures(self) -> Bool:
        """Return which runs failed, shape (n_cells, n_methods)."""
        shape = (len(self.cells), len(self.methods))
        return np.zeros(shape, dtype=bool) if self.failed is None else np.asarray(self.failed, dtype=bool)

    @property
    def ranked(self) -> list[int]:
        """Return the positions of the methods that are no references."""
        return [i for i, method in enumerate(self.methods) if method not in self.references]

    def metric(self, name: str) -> Float64:
        """Return one metric, NaN where missing or failed, shape (n_cells, n_methods); all NaN if it is not there."""
        if name not in self.values:
            return np.full((len(self.cells), len(self.methods)), np.nan)
        return np.where(self.failures, np.nan, self._shaped(self.values[name], name))

    def errors(self, names: Sequence[str]) -> Float64 | None:
        """Return standard errors, shape (n_cells, n_methods, n_metrics); None if a metric has none."""
        if any(name not in self.standard_errors for name in names):
            return None
        return np.stack([self._shaped(self.standard_errors[name], name) for name in names], axis=2)

    def _shaped(self, values: npt.ArrayLike, name: str) -> Float64:
        array, shape = np.asarray(values, np.float64), (len(self.cells), len(self.methods))
        if array.shape != shape:
            raise InvalidMetricInput(f"{name} must have shape (n_cells, n_methods) = {shape}, not {array.shape}")
        return array


FORMAT = "lethe-benchmark-1"
EMBEDDED = re.compile(r'<script type="application/json" id="results">(.*?)</script>', re.DOTALL)
RETAIN_UTILITY = "retain_utility"  # all that there is of model utility without pretraining
ACCURACIES = ("retain", "forget", "test")
Z_95 = 1.959964  # half of a 95 % interval in standard errors


def collect(plan: Plan, folder: BenchmarkFolder) -> Json:
    """Return the results that are there now; a method without all its runs has no entry in its cell."""
    packages = ("torch", "numpy", "scipy", "scikit-learn")
    versions = {"lethe": lethe.__version__, "python": platform.python_version()}
    return assemble(
        plan.file,
        plan.text,
        methods=[
            {"name": method.label, "key": method.key, "id": method.method_id, "constants": dict(method.constants)}
            for method in plan.methods
        ],
        cells={cell.name: _cell(plan, cell, folder) for cell in plan.cells},
        versions=versions | {name: version(name) for name in packages},
        machine=platform.machine(),
    )


def assemble(file: BenchmarkFile, text: str, *, methods: list[Json], cells: Json, versions: Json, machine: str) -> Json:
    """Return results as one object. text: of the benchmark file. cells: by name, as `cell_results` makes them."""
    return {
        "format": FORMAT,
        "slug": file.slug,
        "benchmark": text,
        "benchmark_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "n_models": file.n_models,
        "tables": file.tables.model_dump(mode="json"),
        "tune": file.tune and file.tune.model_dump(mode="json"),
        "metrics": [{"id": request.id, "parameters": request.parameters} for request in file.metrics],
        "methods": methods,
        "cells": cells,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "machine": machine,
        "results_sha256": cells_sha256(cells),
    }


def cells_sha256(cells: Json) -> str:
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()


def read_results(path: Path) -> Json:
    """Return results from a report, .html, .json or .json.gz.

    Raises InvalidInput for a file that is neither.
    """
    try:
        stored = path.read_bytes()
        text = (gzip.decompress(stored) if path.suffix == ".gz" else stored).decode("utf-8")
        embedded = EMBEDDED.search(text)
        content: Json = json.loads(embedded[1].replace("<\\/", "</") if embedded else text)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"{path} is not a report of a benchmark: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InvalidInput(f"{path} is not a report of a benchmark: its format is not {FORMAT}")
    return content


def tuned_entries(content: Json) -> Iterator[str]:
    """Yield lines of TOML: a comment for each cell, and its tuned methods as entries of `methods`."""
    methods = {method["name"]: method for method in content["methods"]}
    for cell, found in content["cells"].items():
        yield f"# {cell}"
        for name, row in found["rows"].items():
            facts = row.get("tuning", {})
            if facts.get("state") == TUNED and methods[name]["id"] is not None:
                pairs = {"method": methods[name]["id"], "name": name} | methods[name]["constants"] | facts["settings"]
                yield "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in pairs.items()) + " },"


def benchmark_results(content: Json) -> BenchmarkResults:
    """Return the numbers as tables take them; the references are the last rows."""
    cells = tuple(content["cells"])
    methods = (*(method["name"] for method in content["methods"]), *REFERENCES)
    names = sorted(
        {name for cell in content["cells"].values() for row in cell["rows"].values() for name in row["values"]}
    )
    shape = (len(cells), len(methods))
    values = {name: np.full(shape, np.nan) for name in names}
    errors = {name: np.full(shape, np.nan) for name in names}
    failed = np.zeros(shape, dtype=bool)
    for i, cell in enumerate(cells):
        for j, method in enumerate(methods):
            row = content["cells"][cell]["rows"].get(method)
            failed[i, j] = bool(row and row.get("failure"))
            for name, found in (row or {"values": {}})["values"].items():
                values[name][i, j] = np.nan if found["value"] is None else found["value"]
                errors[name][i, j] = _standard_error(found)
    known = {name: np.nan_to_num(array) for name, array in errors.items() if _complete(array, values[name])}
    return BenchmarkResults(cells, methods, values, known, failed, references=tuple(REFERENCES))


def higher_is_better(metric_id: str) -> bool:
    """Return the direction by which methods are ranked. Raises InvalidInput for a metric without one."""
    if metric_id in SCORES:
        return True
    direction = metric(metric_id).direction.value
    if direction not in ("higher", "lower"):
        raise InvalidInput(f"methods cannot be ranked by {metric_id}: its direction is {direction!r}")
    return direction == "higher"


def _complete(errors: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> bool:
    """Return whether every ranked value has an error; the references, the last rows, need none."""
    ranked = slice(None, -len(REFERENCES))
    present = ~np.isnan(values[:, ranked])
    return bool(present.any() and not np.isnan(errors[:, ranked][present]).any())


def _standard_error(found: Json) -> float:
    interval = found.get("interval")
    if not interval or interval[0] is None or interval[1] is None:
        return np.nan
    return float(interval[1] - interval[0]) / (2 * Z_95)


def _cell(plan: Plan, cell: CellPlan, folder: BenchmarkFolder) -> Json:
    rows: dict[str, Json] = {}
    for method in plan.methods:
        if (settled := settled_method(plan, folder, cell, method)) is None:
            continue
        unit = folder.unit(cell, settled)
        if failure := unit.read("failure"):
            rows[method.label] = {"failure": failure["message"], "values": {}}
            rows[method.label]["tuning"] = tuning_facts(plan, folder, cell, method)
        elif unit.n_runs >= plan.file.n_models and (kept := unit.read(metrics_file(Side.UNLEARNED))):
            epsilon = unit.read(f"epsilon-{Side.UNLEARNED.value}").get("epsilon")
            rows[method.label] = method_row(plan.file.metrics, kept, epsilon=epsilon)
            rows[method.label]["values"] |= cost_values(unit.read("cost"))
            rows[method.label] |= {"times": unit.read("times"), "sandbox": unit.read("backend").get("sandbox", "")}
            rows[method.label]["tuning"] = tuning_facts(plan, folder, cell, method)
    references = folder.references(cell)
    for name, side in REFERENCES.items():
        if kept := references.read(metrics_file(side)):
            epsilon = references.read(f"epsilon-{side.value}").get("epsilon")
            rows[name] = method_row(plan.file.metrics, kept, epsilon=epsilon)
    manifest = read_object(folder.split_dir(cell) / "manifest.json")
    split = {name: manifest.get(name) for name in ("fingerprint", "retraining_time_s", "versions")}
    made = cell_results(cell.key, cell.competition, failure=folder.cell_failure(cell), split=split, rows=rows)
    return made | {"times": references.read("times")}


def cell_results(key: str, competition: CompetitionFile, *, failure: str, split: Json, rows: Json) -> Json:
    """Return a cell's results. failure: why it cannot be prepared, or nothing. rows: by method or reference."""
    settings = {"dataset", "network", "training", "splits", "scoring", "n_models"}
    return {
        "key": key,
        "failure": failure,
        "settings": competition.model_dump(mode="json", include=settings),
        "split": split,
        "times": {},
        "rows": rows,
    }


def method_row(requests: Iterable[MetricRequest], kept: Json, *, epsilon: list[float] | None) -> Json:
    """Return the row of a method or reference.

    kept: `accuracies` by set, and what is known of each request by its key: a metric as JSON, or why there is none.
    """
    requests, values = list(requests), {}
    for name in ACCURACIES:
        values[f"{name}_accuracy"] = {"value": kept["accuracies"].get(name)}
    not_computed: dict[str, str] = {}
    notes: list[str] = []
    for request in requests:
        found = kept.get(request_key(request), {"not_computed": "not computed yet"})
        if "not_computed" in found:
            not_computed[request.id] = found["not_computed"]
            continue
        values[request.id] = {name: found.get(name) for name in ("value", "interval", "standard_deviation")}
        notes += [f"{request.id}: {note}" for note in found.get("notes", ())]
        if request.id == "retdev" and found.get("table"):
            values |= {f"{name}_retention": {"value": found["table"][f"{name}_retention"]} for name in ACCURACIES}
        if request.id == "model_utility" and "retain_utility" in found.get("table", {}):
            values[RETAIN_UTILITY] = {"value": found["table"]["retain_utility"]}
    tables = {request.id: kept.get(request_key(request), {}).get("table", {}) for request in requests}
    return {"values": values, "tables": tables, "not_computed": not_computed, "notes": notes, "epsilon": epsilon}


def is_finished(content: Mapping[str, Any], cell: str) -> bool:
    """Return whether every method has its values or its failure in a cell."""
    rows = content["cells"][cell]["rows"]
    return all(method["name"] in rows for method in content["methods"])


def write_finished_cells(content: Json, folder: Path) -> list[Path]:
    """Write the results of each finished cell to a file of its own, and return the files."""
    finished = [name for name in content["cells"] if is_finished(content, name)]
    paths = [folder / f"{re.sub(r'[^A-Za-z0-9._=-]', '-', name)}.json" for name in finished]
    for name, path in zip(finished, paths, strict=True):
        one = only_cells(content, [name])
        write_whole(path, (json.dumps(one, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return paths


def read_cells(folder: Path) -> Json:
    """Return the results of all cells in a folder as one. Raises InvalidInput for files of different benchmarks."""
    return joined([read_results(path) for path in result_files(folder)], source=str(folder))


def result_files(folder: Path) -> list[Path]:
    """Return the files of results in a folder, compressed or not."""
    return sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")))


def joined(parts: Sequence[Json], *, source: str) -> Json:
    """Return results with the cells of all parts, in the order of the parts."""
    if not parts:
        raise InvalidInput(f"{source} holds no results of cells (.json)")
    if len(parts) == 1:
        return parts[0]
    if len({part["benchmark_sha256"] for part in parts}) > 1:
        raise InvalidInput(f"{source} holds results of different benchmark files: keep each in a folder of its own")
    return _with_cells(parts[0], {name: cell for part in parts for name, cell in part["cells"].items()})


def only_cells(content: Mapping[str, Any], names: Sequence[str]) -> Json:
    """Return the results of these cells alone."""
    return _with_cells(content, {name: content["cells"][name] for name in names})


def _with_cells(content: Mapping[str, Any], cells: Json) -> Json:
    return dict(content) | {"cells": cells, "results_sha256": cells_sha256(cells)}
