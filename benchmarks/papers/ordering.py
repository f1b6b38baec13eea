"""One statement about results that a paper reports, and what a benchmark says of it.

A difference says something only where it exceeds its standard error: otherwise nothing is decided.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from benchmarks.papers.cell_view import CellView

EVERY_CELL = "all cells"
Decision = bool | None  # None: not decided


@dataclass(frozen=True)
class Ordering:
    """One statement in one cell. holds: None where the results cannot decide it, and `numbers` says why."""

    id: str
    cell: str
    hard: bool
    statement: str
    holds: Decision
    numbers: str


@dataclass(frozen=True)
class BenchmarkRule:
    """A statement about a complete benchmark. find: yields the cell's name, whether it holds there, and its numbers.

    needs: what a benchmark must have for it; the answer where `find` yields nothing.
    """

    id: str
    hard: bool
    statement: str
    needs: str
    find: Callable[[Sequence[CellView]], Iterator[tuple[str, Decision, str]]]

    def check(self, views: Sequence[CellView]) -> Iterator[Ordering]:
        """Yield the statement for every place that has its values, else once with what is missing."""
        found = list(self.find(views))
        for cell, holds, numbers in found:
            yield Ordering(self.id, cell, self.hard, self.statement, holds, numbers)
        if not found:
            reason = f"not in this benchmark: needs {self.needs}"
            yield Ordering(self.id, EVERY_CELL, self.hard, self.statement, None, reason)


class Measured(NamedTuple):
    """A value and its standard error, NaN where none is known."""

    value: float
    error: float = 0.0

    def times(self, factor: float) -> "Measured":
        return Measured(self.value * factor, self.error * abs(factor))

    def minus(self, other: "Measured") -> "Measured":
        return Measured(self.value - other.value, math.hypot(self.error, other.error))


def measured(view: CellView, name: str | None, metric: str) -> Measured:
    """Return a metric of a method or reference. Raises ValueError where it has none."""
    value = view.value(name, metric)
    if value is None or name is None:
        raise ValueError(f"{name} has no {metric}")
    return Measured(value, view.error(name, metric))


def all_measured(view: CellView, names: Iterable[str | None], metric: str) -> dict[str, Measured]:
    """Return the metric of those of `names` that have it."""
    return {name: Measured(value, view.error(name, metric)) for name, value in view.known(metric, *names).items()}


def exceeds(higher: Measured, lower: Measured, *, by: float = 0.0) -> Decision:
    """Return whether one value lies above the other by more than `by`; None within one standard error, or without."""
    apart = higher.minus(lower)
    if apart.value - by > apart.error:
        return True
    return False if apart.value - by < -apart.error else None


def within(apart: Measured, limit: float) -> Decision:
    """Return whether a difference is at most `limit` either way; None within one standard error of the limit."""
    if abs(apart.value) + apart.error <= limit:
        return True
    return False if abs(apart.value) - apart.error > limit else None


def every(decisions: Iterable[Decision]) -> Decision:
    """Return whether all hold: False where one does not, None where one is not decided, or there is none."""
    found = list(decisions)
    if False in found:
        return False
    return None if None in found or not found else True


def falls(values: Sequence[Measured]) -> Decision:
    """Return whether a sequence ends lower than it begins and no step rises."""
    rises = any(exceeds(after, before) for before, after in pairwise(values))
    return False if rises else exceeds(values[0], values[-1])


def correlation_exceeds(rho: float, limit: float, *, n: int) -> Decision:
    """Return whether Spearman's correlation of n pairs is further from 0 than `limit`, on its side.

    Source of the standard error of its Fisher transform: Bonett & Wright 2000.
    """
    sign = math.copysign(1.0, limit)
    error = math.sqrt((1.0 + rho * rho / 2.0) / (n - 3)) if n > 3 else math.nan
    bounded = min(max(sign * rho, -1.0 + 1e-12), 1.0 - 1e-12)
    return exceeds(Measured(math.atanh(bounded), error), Measured(math.atanh(abs(limit))))


def shown(values: Mapping[str, float | Measured]) -> str:
    """Return values by name, with their standard errors where they have one above 0."""
    return ", ".join(f"{name} {_text(value)}" for name, value in values.items())


def _text(value: "float | Measured") -> str:
    if not isinstance(value, Measured):
        return f"{value:.3g}"
    return f"{value.value:.3g}" + (f" (se {value.error:.2g})" if value.error != 0.0 else "")
