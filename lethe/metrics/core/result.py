"""What a metric returns, and the result of a number that was computed for every model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import Float64

Cell = float | int | str | None


@dataclass(frozen=True, eq=False)
class MetricResult:
    """One metric of one set of models.

    value: the number to show; NaN where the metric is not defined for this input (shown as a dash, see notes).
    interval: 95 % interval over models, or None.
    per_run: shape (n_models,), the metric of every run, where it is defined per model.
    per_example: shape (n_examples,), where it is defined per example.
    table: further named numbers, or columns.
    arrays: larger results, such as histograms of every example.
    notes: sentences that must be read beside the value.
    """

    value: float
    interval: tuple[float, float] | None = None
    per_run: Float64 | None = None
    per_example: Float64 | None = None
    table: Mapping[str, Cell | Sequence[Cell]] = field(default_factory=dict)
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        interval = "" if self.interval is None else f", interval=({self.interval[0]:.4g}, {self.interval[1]:.4g})"
        notes = f", {len(self.notes)} notes" if self.notes else ""
        return f"MetricResult({self.value:.6g}{interval}{notes})"

    @property
    def standard_deviation(self) -> float | None:
        """Return the standard deviation over runs (ddof=1) that have a value, or None with fewer than two."""
        if self.per_run is None:
            return None
        known = self.per_run[~np.isnan(self.per_run)]
        return float(known.std(ddof=1)) if known.size >= 2 else None


WITHOUT_RETRAINED = "no retrained models are given, whose value is the aim: this value alone does not say what is good"


def mean_of_runs(unlearned: Float64, retrained: Float64 | None = None) -> MetricResult:
    """Return the mean of the unlearned models' numbers; the retrained models' mean is in the table if they are given.

    unlearned, retrained: shape (n_models,) each; the numbers of models may differ.
    """
    if retrained is None:
        return MetricResult(float(unlearned.mean()), per_run=unlearned, notes=(WITHOUT_RETRAINED,))
    return MetricResult(float(unlearned.mean()), per_run=unlearned, table={"retrained": float(retrained.mean())})


def gap_of_runs(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return |mean of the unlearned models' numbers - mean of the retrained models'|; 0 is ideal.

    unlearned, retrained: shape (n_models,) each; the numbers of models may differ. table: the signed difference; above
    0 the forget set is still known better than after retraining.
    """
    table = {"unlearned": float(unlearned.mean()), "retrained": float(retrained.mean())}
    difference = table["unlearned"] - table["retrained"]
    return MetricResult(abs(difference), table={"difference": difference, **table})


def mean_over_examples(values: npt.ArrayLike) -> MetricResult:
    """Return the mean of values of shape (n_models, n_examples), with the means per run and per example."""
    array = np.asarray(values, np.float64)
    per_run = array.mean(axis=1)
    return MetricResult(float(per_run.mean()), per_run=per_run, per_example=array.mean(axis=0))
