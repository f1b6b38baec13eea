"""Starts methods on a prepared split in a child process, so that their memory and their faults stay there."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import lethe
from lethe.errors import HostFault, InvalidInput

RUNNER = "lethe.tuning.split_run"


@dataclass(frozen=True)
class LocalRuns:
    """What the runs gave. runs: one mapping a run, with its times in seconds and its work in epochs of training.

    retraining_*: of one model, when the split was prepared; retraining_cpu_s is None for splits of version 0.2.
    """

    runs: list[Mapping[str, float]]
    retraining_time_s: float
    retraining_cpu_s: float | None
    retraining_epochs: int
    peak_memory_mib: float
    added_memory_mib: float

    def median(self, name: str) -> float:
        return statistics.median(run[name] for run in self.runs)

    def total(self, name: str) -> float:
        return sum(run[name] for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values, with the run-time efficiencies: retraining's cost over a run's.

        By processor time and by work, each None where retraining's is unknown or a run's is 0.
        """
        by_time = _over(self.retraining_cpu_s, self.median("cpu_time_s"))
        by_work = _over(self.retraining_epochs, self.median("work_epochs"))
        return {**vars(self), "run_time_efficiency": by_time, "work_efficiency": by_work}


class SplitRuns:
    """A child process that holds a prepared split, and forks for each call of `run`.

    Raises InvalidInput if the split is not prepared.
    """

    def __init__(self, split_dir: Path) -> None:
        if not (split_dir / "manifest.json").is_file():
            raise InvalidInput(f"{split_dir} is not a prepared split: it has no manifest.json")
        self._split_dir = split_dir.resolve()

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="lethe-method-")
        self._log = (Path(self._folder.name) / "log").open("w+b")
        read_fd, write_fd = os.pipe()
        root = str(Path(lethe.__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", RUNNER, str(self._split_dir), str(write_fd)],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            pass_fds=(write_fd,),
        )
        os.close(write_fd)
        self._requests = cast(IO[bytes], self._process.stdin)
        self._answers = os.fdopen(read_fd, encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._process.kill()
        self._process.wait()
        self._answers.close()
        self._log.close()
        self._folder.cleanup()

    def run(
        self,
        files: Mapping[str, str],
        *,
        runs: int = 1,
        seed: int = 0,
        weights_dir: Path | None = None,
        outputs_file: Path | None = None,
        timeout_s: float | None = None,
    ) -> LocalRuns:
        """Run a submission's files (the first one holds `unlearning`); run i has the seed `seed + i`.

        weights_dir: where the unlearned models are written; outputs_file: what they answer, as stored outputs.
        Raises InvalidInput if the method fails or the time is over, HostFault if the process is lost.
        """
        if weights_dir is not None:
            weights_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder.name) as name:
            folder = Path(name)
            for file, text in files.items():
                (folder / file).write_text(text, encoding="utf-8")
            request = {
                "source": str(folder / next(iter(files))),
                "runs": runs,
                "seed": seed,
                "weights": None if weights_dir is None else str(weights_dir.resolve()),
                "outputs": None if outputs_file is None else str(outputs_file.resolve()),
                "answer": str(folder / "answer.json"),
                "timeout_s": timeout_s,
            }
            return self._answer(request)

    def _answer(self, request: Mapping[str, Any]) -> LocalRuns:
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            line = self._answers.readline()
        if not line:
            raise HostFault(f"the process that runs methods on {self._split_dir} ended: {self._last_line()}")
        if json.loads(line)["status"] is None:
            raise InvalidInput(f"the method did not end within {request['timeout_s']:g} s")
        answer = Path(request["answer"])
        found = json.loads(answer.read_text("utf-8")) if answer.is_file() else {"failure": line.strip()}
        if "failure" in found:
            raise InvalidInput(f"the method failed: {found['failure']}")
        return LocalRuns(**found)

    def _last_line(self) -> str:
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        return said[-1] if said else "it said nothing"


def run_on_split(files: Mapping[str, str], split_dir: Path, **options: Any) -> LocalRuns:
    """Run a submission's files on a prepared split in a process of its own, as `SplitRuns.run` does."""
    with SplitRuns(split_dir) as process:
        return process.run(files, **options)


def _over(retraining: float | None, run: float) -> float | None:
    return retraining / run if retraining is not None and run > 0 else None
