"""Notebooks in a real sandbox, on a tiny network, with the folders that Kaggle's have."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import dedent
from typing import Literal

import pytest

from lethe.submission.notebook import to_python
from sandbox.frame_reader import NotebookRun
from sandbox.launcher import EntryPoint, Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy
from worker.evaluation.notebook_runs import notebook_mounts

FOLDER = "neurips-2023-machine-unlearning"
POLICY = RunPolicy(
    wall_time_s=300, idle_time_s=10, memory_mib=512, processes=32, scratch_mib=16, scratch_inodes=512, log_kib=64
)
HEADER = """
import json, os, subprocess
import torch
from torch import nn

FOLDER = '/kaggle/input/neurips-2023-machine-unlearning'

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

def original():
    state = torch.load(f'{FOLDER}/original_model.pth')
    return state
"""


@dataclass
class Ended:
    """How a notebook's run ended, and the models that came out of it."""

    result: RunResult
    models: dict[int, bytes]

    @property
    def log(self) -> str:
        return self.result.log.decode()

    @property
    def error_class(self) -> str:
        return self.result.verdict.error_class


@dataclass
class Notebooks:
    sandbox: Sandbox
    stage: Path
    split: Path
    count: int = 0
    models: dict[int, bytes] = field(default_factory=dict)

    def run(self, *cells: str, wanted: int = 3, stop_after: int | None = None, map_cuda: bool = False) -> Ended:
        """Run the cells once, after one that imports torch and defines what most need."""
        models: dict[int, bytes] = {}
        request = RunRequest(
            code_dir=self._staged(HEADER, *cells),
            entry_point=EntryPoint(file="notebook.py"),
            kind="sample",
            notebook=NotebookRun(wanted, models.__setitem__, stop_after=stop_after),
            map_cuda=map_cuda,
        )
        return Ended(self.sandbox.run(request), models)

    def program(
        self,
        *cells: str,
        seed: int = 7,
        mixes: bool = False,
        program: Literal["saves", "defines"] = "saves",
        style: Literal["dict", "tuple"] = "dict",
        compare: bool = False,
        kind: Literal["sample", "hidden"] = "sample",
        original: Path | None = None,
    ) -> Ended:
        """Run the cells as one of many runs does, or compare two of its models."""
        models: dict[int, bytes] = {}
        request = RunRequest(
            code_dir=self._staged(HEADER, *cells),
            entry_point=EntryPoint(file="notebook.py", program=program, style=style),
            seed=seed,
            mixes_seeds=mixes,
            kind=kind,
            notebook=NotebookRun(3, models.__setitem__) if compare else None,
            original=original,
        )
        return Ended(self.sandbox.run(request), models)

    def _staged(self, *cells: str) -> Path:
        self.count += 1
        folder = self.stage / f"notebook-{self.count}"
        folder.mkdir()
        for number, cell in enumerate(cells, start=1):
            (folder / f"cell-{number:02}.py").write_text(to_python(dedent(cell)))
        return folder


Opened = Callable[..., Notebooks]


@pytest.fixture(scope="session")
def notebooks(split: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebooks]:
    stage = tmp_path_factory.mktemp("notebook-stage")
    mounts = notebook_mounts(split, tmp_path_factory.mktemp("layout"), key="k", input_folder=FOLDER)
    spec = SandboxSpec(data_dir=split, stage_dir=stage, policy=replace(POLICY, mounts=mounts))
    with Launcher(spec).start() as sandbox:
        yield Notebooks(sandbox, stage, split)
