"""All that a benchmark's folder holds, as one object of plain values: tables, figures, reports and checks read it.

No torch: a report is made wherever its folder lies.
"""

import gzip
import hashlib
import json
import platform
import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import lethe
from lethe.benchmark.benchmark_file import SCORES, BenchmarkFile
from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.benchmark.metric_keys import REFERENCES, metrics_file, request_key
from lethe.benchmark.plan import CellPlan, Plan
from lethe.benchmark.run_cost import cost_values
from lethe.benchmark.store import BenchmarkFolder, Json, read_object
from lethe.benchmark.tuned_methods import TUNED, settled_method, tuning_facts
from lethe.competition.file import CompetitionFile
from lethe.competition.report_section import MetricRequest
from lethe.errors import InvalidInput
from lethe.metrics import Side, metric

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
    return {
        "values": values,
        "tables": tables,
        "not_computed": not_computed,
        "notes": notes,
        "epsilon": epsilon,
    }
