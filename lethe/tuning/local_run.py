"""Starts methods on a prepared split in a child process, so that their memory and their faults stay there."""

import json
import signal
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.errors import InvalidInput
from lethe.evaluation.child_process import ChildProcess


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


class SplitRuns(ChildProcess):
    """A child process that holds a prepared split, and forks for each call of `run`.

    Raises InvalidInput if the split is not prepared.
    """

    def __init__(self, split_dir: Path) -> None:
        if not (split_dir / "manifest.json").is_file():
            raise InvalidInput(f"{split_dir} is not a prepared split: it has no manifest.json")
        super().__init__("lethe.tuning.split_run", split_dir)
        self.split_dir = split_dir

    def run(
        self,
        files: Mapping[str, str],
        *,
        runs: int = 1,
        seed: int = 0,
        weights_dir: Path | None = None,
        outputs_file: Path | None = None,
        timeout_s: float | None = None,
        run_limit_s: float | None = None,
    ) -> LocalRuns:
        """Run a submission's files (the first one holds `unlearning`); run i has the seed `seed + i`.

        weights_dir: where the unlearned models are written; outputs_file: what they answer, as stored outputs.
        timeout_s: for all runs together, run_limit_s: for each.
        Raises InvalidInput if the method fails or the time is over, HostFault if the process is lost.
        """
        if weights_dir is not None:
            weights_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
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
                "run_limit_s": run_limit_s,
            }
            return self._answer(request)

    def _answer(self, request: Mapping[str, Any]) -> LocalRuns:
        status = self.ask(request)["status"]
        if status is None:
            raise InvalidInput(f"the method did not end within {request['timeout_s']:g} s")
        if status == -signal.SIGALRM:
            raise InvalidInput(f"a run of the method did not end within {request['run_limit_s']:g} s")
        answer = Path(request["answer"])
        lost = {"failure": f"its process ended with status {status}"}
        found = json.loads(answer.read_text("utf-8")) if answer.is_file() else lost
        if "failure" in found:
            raise InvalidInput(f"the method failed: {found['failure']}")
        return LocalRuns(**found)


def run_on_split(files: Mapping[str, str], split_dir: Path, **options: Any) -> LocalRuns:
    """Run a submission's files on a prepared split in a process of its own, as `SplitRuns.run` does."""
    with SplitRuns(split_dir) as process:
        return process.run(files, **options)


def _over(retraining: float | None, run: float) -> float | None:
    return retraining / run if retraining is not None and run > 0 else None
