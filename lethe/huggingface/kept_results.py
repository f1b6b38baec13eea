"""Results that are kept on disk as they are computed, so that an interrupted evaluation goes on where it stopped.

Each is a file named by a hash of everything that it depends on: what changes has another name, and is computed again.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lethe.data.files import write_text
from lethe.huggingface.results import MetricValue, TaskResult

Metrics = dict[str, MetricValue]
RESULT = "result"  # the part that is all of them, with notes


@dataclass(frozen=True)
class KeptResults:
    """A folder of results, made when the first is written. inputs: what all of them depend on, as JSON."""

    folder: Path
    inputs: Mapping[str, Any]

    def read(self, key: Mapping[str, Any]) -> Any:
        """Return what was kept under a key; None if there is nothing that can be read."""
        try:
            return json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def write(self, key: Mapping[str, Any], value: Any) -> None:
        write_text(self._path(key), json.dumps(value))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, key: Mapping[str, Any]) -> Path:
        text = json.dumps({"inputs": self.inputs, "key": key}, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def fingerprint(paths: Collection[Path | None]) -> list[list[str | int]]:
    """Return path, size and time of change of files, and of all that lies in folders."""
    given = [path.resolve() for path in paths if path is not None]
    files = sorted({file for path in given for file in ([path] if path.is_file() else path.rglob("*"))})
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()]


@dataclass
class Parts:
    """The parts of one model's evaluation: some metrics each. key: what they depend on besides `kept.inputs`.

    on_progress: called with numbers of sequences, also of a part that was kept. on_part: with all metrics so far.
    """

    kept: KeptResults | None = None
    key: Mapping[str, Any] = field(default_factory=dict)
    on_progress: Callable[[int], None] = lambda _: None
    on_part: Callable[[Metrics], None] = lambda _: None
    metrics: Metrics = field(default_factory=dict)
    _n_sequences: int = 0

    def count(self, n: int) -> None:
        self._n_sequences += n
        self.on_progress(n)

    def get(self, name: str, compute: Callable[[], Metrics], *, may_keep: Callable[[], bool]) -> Metrics:
        """Return the metrics of a part: kept ones, else computed ones, which are kept where they may be."""
        before = self._n_sequences
        found = None if self.kept is None else self.kept.read(self._key(name))
        if found is not None:
            metrics = _metrics(found["metrics"])
            self.count(found["n_sequences"])
        else:
            metrics = compute()
            if self.kept is not None and may_keep():
                value = {"metrics": _as_json(metrics), "n_sequences": self._n_sequences - before}
                self.kept.write(self._key(name), value)
        self.metrics |= metrics
        if may_keep():
            self.on_part(self.metrics)
        return metrics

    def result(self) -> TaskResult | None:
        """Return the result that was kept, None if the evaluation was not finished."""
        found = None if self.kept is None else self.kept.read(self._key(RESULT))
        if found is None:
            return None
        self.count(found["n_sequences"])
        return TaskResult(found["task"], _metrics(found["metrics"]), tuple(found["notes"]), found["is_finite"])

    def keep(self, result: TaskResult) -> None:
        if self.kept is not None:
            value = {**vars(result), "metrics": _as_json(result.metrics), "n_sequences": self._n_sequences}
            self.kept.write(self._key(RESULT), value)

    def _key(self, name: str) -> dict[str, Any]:
        return {**self.key, "part": name}


def _as_json(metrics: Mapping[str, MetricValue]) -> dict[str, Any]:
    return {
        name: {
            **vars(metric),
            "per_example": _columns(metric.per_example),
            "sides": {side: _columns(columns) for side, columns in metric.sides.items()},
        }
        for name, metric in metrics.items()
    }


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"dtype": str(values.dtype), "values": values.tolist()} if isinstance(values, np.ndarray) else values
        for name, values in columns.items()
    }


def _metrics(stored: Mapping[str, Any]) -> Metrics:
    return {
        name: MetricValue(
            each["value"],
            _read_columns(each["per_example"]),
            {side: _read_columns(columns) for side, columns in each["sides"].items()},
            each["reason"],
        )
        for name, each in stored.items()
    }


def _read_columns(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: np.array(values["values"], values["dtype"]) if isinstance(values, dict) else values
        for name, values in stored.items()
    }
