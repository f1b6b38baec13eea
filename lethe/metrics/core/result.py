"""What a metric returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
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
