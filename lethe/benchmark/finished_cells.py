"""A benchmark's results cell by cell: a file for each finished one, so that a lost machine loses one cell at most."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lethe.benchmark.results import cells_sha256, read_results
from lethe.benchmark.store import Json, write_whole
from lethe.errors import InvalidInput


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
