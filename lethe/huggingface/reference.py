"""What a retain model (trained without the forget set) contributes: its own results, or logs of them.

Logs are open-unlearning's EVAL.json: {metric: {"agg_value": value, "value_by_index": {"0": {name: value}}}}.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.results import InvalidTaskData, MetricValue, PerExample, TaskResult


@dataclass(frozen=True)
class Reference:
    """Results of a retain model. load: gives the model; None where only logs are known."""

    metrics: Mapping[str, MetricValue]
    load: Callable[[], LanguageModel] | None = None

    @cached_property
    def model(self) -> LanguageModel | None:
        return self.load() if self.load else None

    def per_example(self, metric: str, name: str) -> npt.NDArray[Any] | None:
        found = self.metrics.get(metric)
        values = found.per_example.get(name) if found else None
        return None if values is None else np.asarray(values, np.float64)

    def value(self, metric: str) -> float | None:
        found = self.metrics.get(metric)
        return found.value if found else None


def read_logs(path: Path) -> Reference:
    """Return the results that an EVAL.json holds. Raises InvalidTaskData if it is none."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidTaskData(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(stored, dict) or not any(isinstance(e, dict) and "agg_value" in e for e in stored.values()):
        raise InvalidTaskData(
            f"{path} holds no results of open-unlearning; allowed is an object of metrics with `agg_value`"
        )
    metrics = {name: entry for name, entry in stored.items() if isinstance(entry, dict) and "agg_value" in entry}
    return Reference({name: _metric(path, name, entry) for name, entry in metrics.items()})


def as_logs(result: TaskResult) -> dict[str, Any]:
    """Return the results in the form of EVAL.json, metrics without a value left out."""
    return {
        name: {"agg_value": metric.value, **_stored(metric)}
        for name, metric in result.metrics.items()
        if metric.value is not None
    }


def as_summary(result: TaskResult) -> dict[str, float]:
    """Return the results in the form of SUMMARY.json."""
    return {name: value for name, value in result.values().items() if value is not None}


def _stored(metric: MetricValue) -> dict[str, Any]:
    if metric.sides:
        auc = {"auc": metric.value}
        return {**auc, **{side: {"value_by_index": _by_index(values)} for side, values in metric.sides.items()}}
    return {"value_by_index": _by_index(metric.per_example)} if metric.per_example else {}


def _by_index(per_example: PerExample) -> dict[str, dict[str, Any]]:
    columns = {
        name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in per_example.items()
    }
    n = len(next(iter(columns.values())))
    return {str(i): {name: values[i] for name, values in columns.items()} for i in range(n)}


def _metric(path: Path, name: str, entry: Mapping[str, Any]) -> MetricValue:
    by_index = entry.get("value_by_index") or {}
    try:
        rows = [by_index[key] for key in sorted(by_index, key=int)]
        columns = {key: np.array([row[key] for row in rows]) for key in (rows[0] if rows else {})}
        value = entry["agg_value"]
        return MetricValue(None if value is None else float(value), columns)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidTaskData(f"{path}: the values of {name} are not those of open-unlearning: {error!r}") from error
