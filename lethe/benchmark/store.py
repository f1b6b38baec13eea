"""The folder of a benchmark: splits, outputs, failures and metrics by the keys of their content.

Files appear whole (written beside, then renamed) and a lock is given back when its process ends, so any number of
processes may work in one folder and each may be killed at any time.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.benchmark.plan import CellPlan, MethodPlan, Plan
from lethe.errors import InvalidInput

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
