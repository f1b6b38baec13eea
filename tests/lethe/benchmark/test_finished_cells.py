"""Results cell by cell, and joined again."""

import json

import pytest

from lethe.benchmark.finished_cells import read_cells, write_finished_cells
from lethe.benchmark.results import FORMAT
from lethe.errors import InvalidInput


def content(**cells):
    made = {name: {"rows": {method: {} for method in methods}} for name, methods in cells.items()}
    return {"format": FORMAT, "benchmark_sha256": "1", "methods": [{"name": "a"}, {"name": "b"}], "cells": made}


def test_finished_cells_are_written_and_joined(tmp_path):
    all_cells = content(one=("a", "b"), two=("a",), three=("a", "b", "exact retraining"))
    assert [path.name for path in write_finished_cells(all_cells, tmp_path)] == ["one.json", "three.json"]
    assert set(read_cells(tmp_path)["cells"]) == {"one", "three"}


def test_cells_of_another_benchmark_are_not_joined(tmp_path):
    write_finished_cells(content(one=("a", "b")), tmp_path)
    (tmp_path / "x.json").write_text(json.dumps(content(x=("a", "b")) | {"benchmark_sha256": "2"}))
    with pytest.raises(InvalidInput, match="different benchmark files"):
        read_cells(tmp_path)
