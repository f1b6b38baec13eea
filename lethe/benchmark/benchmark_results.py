"""What a benchmark measured: metrics of every method in every cell (data set and network)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import Bool, Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput


@dataclass(frozen=True, eq=False)
class BenchmarkResults:
    """values: metric -> shape (n_cells, n_methods), NaN where missing. standard_errors: same, for some metrics.

    failed: bool, shape (n_cells, n_methods); a failed method has no value in that cell. None: nothing failed.
    references: methods that are shown and not ranked, such as the original and the retrained models.
    Raises InvalidMetricInput for other shapes, names that occur twice or unknown references.
    """

    cells: tuple[str, ...]
    methods: tuple[str, ...]
    values: Mapping[str, npt.ArrayLike]
    standard_errors: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    failed: npt.ArrayLike | None = None
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check names and shapes."""
        for names in (self.cells, self.methods):
            if len(set(names)) != len(names) or not names:
                raise InvalidMetricInput(f"names must be there and differ, not {names}")
        unknown = set(self.references) - set(self.methods)
        if unknown:
            raise InvalidMetricInput(f"references are not among the methods: {', '.join(sorted(unknown))}")
        for metric, values in (*self.values.items(), *self.standard_errors.items()):
            self._shaped(values, metric)
        if self.failed is not None:
            self._shaped(self.failed, "failed")

    @property
    def failures(self) -> Bool:
        """Return which runs failed, shape (n_cells, n_methods)."""
        shape = (len(self.cells), len(self.methods))
        return np.zeros(shape, dtype=bool) if self.failed is None else np.asarray(self.failed, dtype=bool)

    @property
    def ranked(self) -> list[int]:
        """Return the positions of the methods that are no references."""
        return [i for i, method in enumerate(self.methods) if method not in self.references]

    def metric(self, name: str) -> Float64:
        """Return one metric, NaN where missing or failed, shape (n_cells, n_methods); all NaN if it is not there."""
        if name not in self.values:
            return np.full((len(self.cells), len(self.methods)), np.nan)
        return np.where(self.failures, np.nan, self._shaped(self.values[name], name))

    def errors(self, names: Sequence[str]) -> Float64 | None:
        """Return standard errors, shape (n_cells, n_methods, n_metrics); None if a metric has none."""
        if any(name not in self.standard_errors for name in names):
            return None
        return np.stack([self._shaped(self.standard_errors[name], name) for name in names], axis=2)

    def _shaped(self, values: npt.ArrayLike, name: str) -> Float64:
        array, shape = np.asarray(values, np.float64), (len(self.cells), len(self.methods))
        if array.shape != shape:
            raise InvalidMetricInput(f"{name} must have shape (n_cells, n_methods) = {shape}, not {array.shape}")
        return array
