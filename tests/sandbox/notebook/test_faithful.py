"""The comparison of notebooks with themselves: its programs, and its command."""

import ast
import json
from pathlib import Path

import pytest

from benchmarks.kaggle.programs import programs
from lethe.submission.ipython_magics import to_python
from lethe.submission.package import load_package
from tests.support.forked_children import run_module


def notebook(cells: list[str]) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()


def test_there_are_more_than_a_hundred_different_programs() -> None:
    found = dict(programs())
    assert len({"\n".join(cells) for cells in found.values()}) == len(found) > 100
    for name, cells in found.items():
        for cell in cells:
            ast.parse(to_python(cell), name)
        assert load_package(notebook(cells), f"{name}.ipynb").entry_point.program == "saves"


@pytest.mark.slow
def test_the_command_keeps_models_and_writes_verdicts(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    plain = dict(programs())["plain"]
    (tmp_path / "programs" / "plain.ipynb").write_bytes(notebook(plain))
    (tmp_path / "programs" / "nothing.ipynb").write_bytes(notebook(["import torch", "torch.save({}, 'x.pth')"]))
    options = [f"--{name}={tmp_path / name}" for name in ("programs", "keep", "json")]
    assert run_module("benchmarks.kaggle.faithful", *options, timeout=600).returncode == 0
    verdicts = json.loads((tmp_path / "json").read_text())
    assert {name: found["verdict"] for name, found in verdicts.items()} == {"plain": "equal", "nothing": "refused"}
    kept = [tmp_path / "keep" / "plain" / f"{who}-0.safetensors" for who in ("honest", "lethe")]
    assert kept[0].stat().st_size == kept[1].stat().st_size > 40_000_000
