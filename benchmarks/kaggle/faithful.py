"""Is the first model that Lethe takes from a notebook the one that the notebook makes by itself, to the bit?

python -m benchmarks.kaggle.faithful [--programs DIR] [--keep DIR] [--json FILE] [--only NAME]

--programs: notebooks NAME.ipynb in Kaggle's form, for a ResNet-18 with 10 classes; without it, those of
`benchmarks.kaggle.programs`. --keep: leave NAME/honest-0.safetensors and NAME/lethe-0.safetensors there. --json: write
{NAME: {"verdict": "equal" | "refused" | "different", "reason": ...}}.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.kaggle.honest_run import SEED
from benchmarks.kaggle.programs import programs
from lethe.data.datasets.faces import open_faces
from lethe.errors import InvalidSubmission
from lethe.evaluation.local_check import stage_files
from lethe.networks import builders
from lethe.runtime.error_classes import warnings_in
from lethe.submission.package import load_package
from sandbox.backends.bubblewrap import find_bwrap
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import RunPolicy
from worker.evaluation.notebook_runs import compare_program, equal_models, is_compared, notebook_mounts
from worker.evaluation.run_policy import entry_point

INPUT_FOLDER = "neurips-2023-machine-unlearning"
LIMIT_S = 300.0
POLICY = RunPolicy(
    wall_time_s=LIMIT_S,
    idle_time_s=None,
    memory_mib=4096,
    processes=128,
    scratch_mib=1024,
    scratch_inodes=8192,
    file_size_mib=1024,
    shared_memory_mib=512,
    open_files=1024,
)
ROOT = Path(__file__).parents[2]
HIDDEN = frozenset({"kaggle", "scratch", "dev", "proc", "tmp", "result"})  # of this machine's root
NETWORK = {"name": "resnet18", "options": {}, "input_shape": [3, 32, 32], "n_classes": 10}
NETWORK |= {"input_scale": 1.0, "input_shift": 0.0}
SIZES = {"retain": 64, "forget": 32, "validation": 32}
Verdict = dict[str, str]


def main() -> int:
    """Compare every program; the exit status is 1 if one differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", help="a program's name, or how it begins")
    arguments = parser.parse_args()
    verdicts: dict[str, Verdict] = {}
    with tempfile.TemporaryDirectory(prefix="lethe-faithful-") as name, ExitStack() as ends:
        folder = Path(name)
        folder.chmod(0o755)
        keep = arguments.keep or folder / "kept"
        for path in _notebooks(arguments.programs, folder / "programs"):
            if arguments.only and not any(path.stem.startswith(start) for start in arguments.only):
                continue
            if not verdicts:
                bench = ends.enter_context(Bench(folder, keep.resolve()))
            verdicts[path.stem] = found = bench.compare(path)
            print(f"{found['verdict']:9} {path.stem}  {found['reason'][:160]}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(verdicts, indent=1), encoding="utf-8")
    counted = Counter(found["verdict"] for found in verdicts.values())
    print(
        f"{len(verdicts)} programs: "
        + ", ".join(f"{counted[kind]} {kind}" for kind in ("equal", "refused", "different"))
    )
    return int(counted["different"] > 0)


def _notebooks(given: Path | None, folder: Path) -> Iterator[Path]:
    if given is not None:
        yield from sorted(given.glob("*.ipynb"))
        return
    folder.mkdir()
    for name, cells in programs():
        path = folder / f"{name}.ipynb"
        code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
        path.write_text(
            json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8"
        )
        yield path


def write_split(folder: Path) -> Path:
    """Write a split's visible folder in Kaggle's form, drawn faces whose bytes are the inputs, and return it."""
    folder.mkdir(parents=True)
    (folder / "network.json").write_text(json.dumps(NETWORK), encoding="utf-8")
    torch.manual_seed(0)
    state = {name: value.contiguous() for name, value in builders.build(NETWORK).state_dict().items()}
    save_file(state, folder / "original_model.safetensors")
    faces = open_faces({"persons": 10 + sum(SIZES.values()) // 4, "images_per_person": 6})
    order = np.random.default_rng(0).permutation(len(faces.labels))
    first = 0
    for name, size in SIZES.items():
        chosen = np.sort(order[first : first + size])
        first += size
        tensors = {
            "images": torch.from_numpy(faces.images[chosen]),
            "labels": torch.from_numpy(faces.labels[chosen]),
            "ids": torch.from_numpy(chosen.astype(np.int64)),
            "persons": torch.from_numpy(faces.persons[chosen]),
        }
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{name}.safetensors")
    return folder


class NoHonestModel(Exception):
    """The program has left no model; the message is what it said last."""


class HonestRuns:
    """A process that runs notebooks one after another, each in a fork of its own, with empty folders.

    layout: the folder with the split's `input`. keep: where results may be written.
    """

    def __init__(self, layout: Path, keep: Path) -> None:
        self._layout, self._keep = layout, keep

    def __enter__(self) -> Self:
        self._keep.mkdir(parents=True, exist_ok=True)
        words = [str(find_bwrap()), *self._view(), sys.executable, "-m", "benchmarks.kaggle.honest_run"]
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "HOME": "/scratch",
            "TMPDIR": "/scratch",
            "MPLBACKEND": "Agg",
        }
        self._process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cast(IO[str], self._process.stdin).close()
        self._process.wait()

    def run(self, notebook: Path, into: Path) -> None:
        """Run the notebook and write its first model, as safetensors. Raises NoHonestModel."""
        into.parent.mkdir(parents=True, exist_ok=True)
        requests = cast(IO[str], self._process.stdin)
        place = Path("/result") / into.relative_to(self._keep)
        requests.write(json.dumps([notebook.read_text(encoding="utf-8"), str(place)]) + "\n")
        requests.flush()
        said = json.loads(cast(IO[str], self._process.stdout).readline() or '"it ended"')
        if said:
            raise NoHonestModel(said)

    def _view(self) -> list[str]:
        words = ["--tmpfs", "/"]
        for folder in sorted(Path("/").iterdir()):
            if folder.is_symlink():
                words += ["--symlink", str(folder.readlink()), str(folder)]
            elif folder.name not in HIDDEN and folder.is_dir():
                words += ["--ro-bind", str(folder), str(folder)]
        words += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/scratch", "--tmpfs", "/tmp", "--unshare-net"]
        for place in (ROOT, Path(sys.prefix), Path(sys.base_prefix)):
            if place.parts[1] in HIDDEN:  # the checkout or its Python lies below /tmp
                words += ["--ro-bind", str(place), str(place)]
        words += ["--ro-bind", str(self._layout / "input"), "/kaggle/input", "--bind", str(self._keep), "/result"]
        return [*words, "--tmpfs", "/kaggle/tmp", "--tmpfs", "/kaggle/working", "--chdir", "/kaggle/working"]


class Bench:
    """A small split, its folders, and a sandbox on it, which a refused program may leave behind."""

    def __init__(self, folder: Path, keep: Path) -> None:
        self._keep = keep
        split = write_split(folder / "split")
        mounts = notebook_mounts(split, folder / "layout", key="k", input_folder=INPUT_FOLDER)
        self._layout = Path(mounts[0].source)
        self._stage = folder / "stage"
        self._stage.mkdir()
        self._spec = SandboxSpec(
            data_dir=split, stage_dir=self._stage, policy=replace(POLICY, mounts=mounts), production=False
        )

    def __enter__(self) -> Self:
        self._ends = ExitStack()
        self._honest = self._ends.enter_context(HonestRuns(self._layout, self._keep))
        self._sandbox = self._ends.enter_context(Launcher(self._spec).start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def compare(self, notebook: Path) -> Verdict:
        """Run a notebook both ways, and return whether its first models are equal."""
        keep = self._keep / notebook.stem
        honest, lethe = keep / "honest-0.safetensors", keep / "lethe-0.safetensors"
        try:
            self._honest.run(notebook, honest)
        except NoHonestModel as error:
            return {"verdict": "refused", "reason": f"by itself it makes no model: {error}"}
        try:
            weights, reason = self._through_lethe(notebook)
        except InvalidSubmission as error:
            return {"verdict": "refused", "reason": error.detail}
        if weights is None:
            return {"verdict": "refused", "reason": reason}
        lethe.write_bytes(weights)
        same = weights == honest.read_bytes() or equal_models(weights, honest.read_bytes(), tolerance=0.0)
        return {"verdict": "equal" if same else "different", "reason": reason}

    def _through_lethe(self, notebook: Path) -> tuple[bytes | None, str]:
        package = load_package(notebook.read_bytes(), notebook.name)
        code_dir = stage_files(package, self._stage / notebook.stem)
        point = entry_point(package.entry_point.as_data(), sent_as=notebook.name)
        request = RunRequest(code_dir=code_dir, entry_point=point, seed=SEED, kind="sample", map_cuda=True)
        result = self._sandbox.run(request)
        if result.weights is None:
            return None, f"{result.verdict.error_class}: {result.verdict.message} {result.log.decode()[-500:]}"
        if not is_compared(request):
            return result.weights, ""
        found = compare_program(self._sandbox.run, request, first=result, run_limit_s=LIMIT_S, setup_s=LIMIT_S)
        if found.verdict is not None:
            return None, f"{found.verdict.error_class}: {found.verdict.message}"
        return result.weights, " ".join(warnings_in("\n".join(found.notes)))


if __name__ == "__main__":
    raise SystemExit(main())
