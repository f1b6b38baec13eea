"""What an evaluation of a folder gives: one value per metric, and the values per example behind it.

Results are kept on disk as they are computed, so that an interrupted evaluation goes on where it stopped: each in a
file named by a hash of everything that it depends on. What changes has another name, and is computed again.
"""

import hashlib
import importlib.metadata
import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.errors import AppError


class InvalidModelFolder(AppError):
    """A folder holds no causal language model that can be loaded; the message says what is missing or refused."""


class InvalidTaskData(AppError):
    """A task's data are missing or malformed; the message names the file, the line and what is allowed."""


NOT_FINITE = "its outputs are NaN or infinite: the model has diverged"
PerExample = Mapping[str, npt.NDArray[Any] | list[str]]


@dataclass(frozen=True)
class MetricValue:
    """One metric. value: None where it cannot be computed, for the `reason`.

    per_example: arrays by name over the examples. sides: the same for metrics over two sets (`forget`, `holdout`).
    """

    value: float | None
    per_example: PerExample = field(default_factory=dict)
    sides: Mapping[str, PerExample] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class TaskResult:
    """All metrics of one folder on one task, and what a reader of them should know. error: why there are none."""

    task: str
    metrics: Mapping[str, MetricValue]
    notes: tuple[str, ...] = ()
    is_finite: bool = True
    error: str = ""

    def values(self) -> dict[str, float | None]:
        return {name: metric.value for name, metric in self.metrics.items()}

    def without_values(self) -> "TaskResult":
        """Return the result of a model whose outputs are not finite: no metric has a value, for one reason."""
        metrics = dict.fromkeys(self.metrics, MetricValue(None, reason=NOT_FINITE))
        return TaskResult(self.task, metrics, (NOT_FINITE,), is_finite=False)


def over_examples(values: npt.NDArray[np.float64], *, name: str = "score", **more: Any) -> MetricValue:
    """Return the mean of values per example; those without a value (NaN) are left out.

    values: (n,) or (n, k); the mean over k comes first.
    """
    known = values[~np.isnan(values)] if values.ndim == 1 else values.mean(axis=1)
    value = float(known.mean()) if known.size else None
    return MetricValue(value, {name: values, **more}, reason="" if known.size else "no example has a value")


Metrics = dict[str, MetricValue]


VERSIONS_OF = ("torch", "transformers", "tokenizers", "peft", "numpy", "scipy", "scikit-learn", "lm_eval")


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
        from lethe.data.files import write_text  # noqa: PLC0415  safetensors, which a wheel without extras lacks

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
class _Computation:
    """A metric that is being computed: what it asked for, and the sequences that were read or written for it alone."""

    n_sequences: int = 0
    needs: list[str] = field(default_factory=list)


@dataclass
class ModelMetrics:
    """The metrics of one model: how each is computed, and those that are, with what they are made of.

    wanted: the names of those that are asked for, None for all. kept: where each is written when it is computed. key:
    what they depend on besides `kept.inputs`. on_progress: called with numbers of sequences, also of a metric that was
    kept. on_metric: called with all so far.
    """

    wanted: Collection[str] | None = None
    kept: KeptResults | None = None
    key: Mapping[str, Any] = field(default_factory=dict)
    on_progress: Callable[[int], None] = lambda _: None
    on_metric: Callable[[Metrics], None] = lambda _: None
    _defined: dict[str, Callable[[], MetricValue]] = field(default_factory=dict)
    _inner: set[str] = field(default_factory=set)
    _computed: Metrics = field(default_factory=dict)
    _begun: list[_Computation] = field(default_factory=lambda: [_Computation()])
    _n_sequences: int = 0

    def count(self, n: int) -> None:
        self._n_sequences += n
        self._begun[-1].n_sequences += n
        self.on_progress(n)

    def define(self, name: str, compute: Callable[[], MetricValue], *, is_inner: bool) -> None:
        self._defined[name] = compute
        if is_inner:
            self._inner.add(name)

    def get(self, name: str, *, may_keep: Callable[[], bool]) -> MetricValue:
        """Return a metric: one that is known, else a kept one, else a computed one, which is kept where it may be."""
        self._begun[-1].needs.append(name)
        if name not in self._computed:
            found = None if self.kept is None else self.kept.read(self._key(name))
            self._begun.append(_Computation())
            try:
                if found is not None:
                    for needed in found["needs"]:
                        self.get(needed, may_keep=may_keep)
                    metric = _metric(found["metric"])
                    self.count(found["n_sequences"])
                else:
                    metric = self._defined[name]()
            finally:
                own = self._begun.pop()
            if found is None and self.kept is not None and may_keep():
                self.kept.write(self._key(name), {"metric": _as_json(metric), **vars(own)})
            self._computed[name] = metric
            if may_keep():
                self.on_metric(self.shown())
        return self._computed[name]

    def shown(self) -> Metrics:
        """Return what is computed, in the order of the definitions."""
        return {name: self._computed[name] for name in self._defined if name in self._computed.keys() - self._inner}

    def compute(self, *, may_keep: Callable[[], bool]) -> Metrics:
        """Return the metrics that are asked for, and what they are made of."""
        every = [name for name in self._defined if name not in self._inner]
        for name in every if self.wanted is None else require_known(self.wanted, every):
            self.get(name, may_keep=may_keep)
        return self.shown()

    def result(self) -> TaskResult | None:
        """Return the result that was kept, None if the evaluation was not finished."""
        found = None if self.kept is None else self.kept.read(self._result_key())
        if found is None:
            return None
        self.count(found["n_sequences"])
        metrics = {name: _metric(each) for name, each in found["metrics"].items()}
        return TaskResult(found["task"], metrics, tuple(found["notes"]), found["is_finite"])

    def keep(self, result: TaskResult) -> None:
        if self.kept is not None:
            metrics = {name: _as_json(metric) for name, metric in result.metrics.items()}
            self.kept.write(self._result_key(), {**vars(result), "metrics": metrics, "n_sequences": self._n_sequences})

    def _key(self, name: str) -> dict[str, Any]:
        return {**self.key, "metric": name}

    def _result_key(self) -> dict[str, Any]:
        return {**self.key, "metrics": None if self.wanted is None else sorted(self.wanted)}


def require_known(names: Collection[str], known: Collection[str]) -> Collection[str]:
    """Return the names. Raises InvalidTaskData for one that is no metric of the task."""
    if unknown := [name for name in names if name not in known]:
        raise InvalidTaskData(f"the task has no metric {unknown[0]!r}; allowed are {', '.join(sorted(known))}")
    return names


def _as_json(metric: MetricValue) -> dict[str, Any]:
    return {
        **vars(metric),
        "per_example": _columns(metric.per_example),
        "sides": {side: _columns(columns) for side, columns in metric.sides.items()},
    }


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"dtype": str(values.dtype), "values": values.tolist()} if isinstance(values, np.ndarray) else values
        for name, values in columns.items()
    }


def _metric(stored: Mapping[str, Any]) -> MetricValue:
    sides = {side: _read_columns(columns) for side, columns in stored["sides"].items()}
    return MetricValue(stored["value"], _read_columns(stored["per_example"]), sides, stored["reason"])


def _read_columns(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: np.array(values["values"], values["dtype"]) if isinstance(values, dict) else values
        for name, values in stored.items()
    }


def versions() -> dict[str, str]:
    """Return the versions of the libraries that a result depends on."""
    found = {}
    for name in VERSIONS_OF:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
