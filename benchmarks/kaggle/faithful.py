"""Is the first model that Lethe takes from a notebook the one that the notebook makes by itself, to the bit?

python -m benchmarks.kaggle.faithful [--programs DIR] [--keep DIR] [--json FILE] [--only NAME]

--programs: notebooks NAME.ipynb in Kaggle's form, for a ResNet-18 with 10 classes; without it, those of
`benchmarks.kaggle.programs`. --keep: leave NAME/honest-0.safetensors and NAME/lethe-0.safetensors there. --json: write
{NAME: {"verdict": "equal" | "refused" | "different", "reason": ...}}.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.kaggle.data import write_split
from benchmarks.kaggle.honest import HonestRuns, NoHonestModel
from benchmarks.kaggle.honest_run import SEED
from benchmarks.kaggle.programs import programs
from lethe.errors import InvalidSubmission
from lethe.evaluation.local_check import stage_files
from lethe.runtime.original_filenames import warnings_in
from lethe.submission.package import load_package
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
