"""What an evaluation of a folder gives: one value per metric, and the values per example behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
