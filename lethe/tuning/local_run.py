"""Starts a method on a prepared split in a child process, so that its memory and its faults stay there."""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.errors import InvalidInput

RUNNER = "lethe.tuning.split_run"


@dataclass(frozen=True)
class LocalRuns:
    """What the runs gave. runs: one mapping a run. retraining_time_s: of one model, when the split was prepared."""

    runs: list[Mapping[str, float]]
    retraining_time_s: float
    peak_memory_mib: float
    added_memory_mib: float

    def median(self, name: str) -> float:
        return statistics.median(run[name] for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values, with the run-time efficiency: retraining's time over a run's."""
        return {**vars(self), "run_time_efficiency": self.retraining_time_s / self.median("wall_time_s")}


def run_on_split(
    files: Mapping[str, str],
    split_dir: Path,
    *,
    runs: int = 1,
    seed: int = 0,
    weights_dir: Path | None = None,
    timeout_s: float | None = None,
) -> LocalRuns:
    """Run a submission's files (the first one holds `unlearning`) on a prepared split.

    weights_dir: where the unlearned models are written. Raises InvalidInput if the split is not prepared, the child
    fails, or the time is over.
    """
    if not (split_dir / "manifest.json").is_file():
        raise InvalidInput(f"{split_dir} is no prepared split: it has no manifest.json")
    if weights_dir is not None:
        weights_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lethe-method-") as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        request = {
            "split": str(split_dir.resolve()),
            "source": str(folder / next(iter(files))),
            "runs": runs,
            "seed": seed,
            "weights": None if weights_dir is None else str(weights_dir.resolve()),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        return LocalRuns(**_child(folder / "request.json", timeout_s))


def _child(request: Path, timeout_s: float | None) -> dict[str, Any]:
    command = [sys.executable, "-m", RUNNER, str(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(f"the method did not end within {timeout_s:g} s") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise InvalidInput(f"the method failed: {said[-1]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
