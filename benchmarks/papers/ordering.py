"""One statement about results that a paper reports, what a benchmark says of it, and one cell of the results.

A difference says something only where it exceeds its standard error: otherwise nothing is decided.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from lethe.benchmark.benchmark_file import parse_benchmark
from lethe.benchmark.results import RETAIN_UTILITY
from lethe.methods.catalogue import method_info
from lethe.metrics.scoring.attacks.family import EPSILON_CAP

ORACLE, ORIGINAL = "exact retraining", "original model"
Z_95 = 1.959964
WINNERS = ("fcs", "msg", "cfw", "prmq", "kde", "rni")  # of the competition of 2023
EVERY_CELL = "all cells"
Decision = bool | None  # None: not decided
Found = Iterator[tuple[str, Decision, str]]  # where, whether it holds there, numbers


@dataclass(frozen=True)
class CellView:
    """content: a benchmark's results. name: of the cell."""

    content: Mapping[str, Any]
    name: str

    @property
    def methods(self) -> list[str]:
        """Return the names of the methods that have results here, references left out."""
        rows = self.content["cells"][self.name]["rows"]
        return [m["name"] for m in self.content["methods"] if m["name"] in rows and not rows[m["name"]].get("failure")]

    def _row(self, name: str | None) -> dict[str, Any]:
        return dict(self.content["cells"][self.name]["rows"].get(name, {}))

    def _of(self, method_id: str) -> list[dict[str, Any]]:
        there = set(self.methods)
        return [m for m in self.content["methods"] if m["id"] == method_id and m["name"] in there]

    def named(self, method_id: str) -> str | None:
        """Return the name of a method of this id that has results; the one without changed constants first."""
        names = [m["name"] for m in self._of(method_id)]
        return method_id if method_id in names else next(iter(names), None)

    def by_layers(self, method_id: str) -> dict[int, str]:
        """Return the names of the variants of eu_k or cf_k by their K, ascending."""
        return dict(sorted((int(m["constants"]["K"]), m["name"]) for m in self._of(method_id)))

    def constants(self, name: str) -> dict[str, Any]:
        """Return the constants of a method, by the name of its row; those of a file of code are unknown: none."""
        given = next((dict(m["constants"]) for m in self.content["methods"] if m["name"] == name), {})
        return given | self._tuned(name)

    def _tuned(self, name: str) -> dict[str, Any]:
        return dict(self._row(name).get("tuning", {}).get("settings", {}))

    def with_own_constants(self, method_id: str) -> str | None:
        """Return the name of the method of this id for which no constant was set to another than the catalogue's.

        What was set is what the benchmark file says and what its tuning chose, or every constant where the results
        hold no file: a default that has changed since they were made is still the method's own.
        """
        own = {constant.name: constant.value for constant in method_info(method_id).constants}
        ids = {m["name"]: m["id"] for m in self.content["methods"]}
        given = {name: self.constants(name) for name in ids}
        if "benchmark" in self.content:
            entries = parse_benchmark(self.content["benchmark"]).methods
            given = {entry.label: dict(entry.constants) | self._tuned(entry.label) for entry in entries}
        there = (name for name in self.methods if ids[name] == method_id)
        return next((name for name in there if given[name].items() <= own.items()), None)

    def settings(self, *names: str) -> dict[str, Any]:
        """Return these sections of the cell's competition."""
        found = self.content["cells"][self.name]["settings"]
        found = {"scoring": found.get("metric"), **found}  # its name in results of version 0.2
        return {name: found.get(name) for name in names}

    def table(self, name: str, metric: str) -> dict[str, Any]:
        """Return the table of a metric of a method or reference, empty where it has none."""
        return dict(self._row(name).get("tables", {}).get(metric) or {})

    def n_forget(self) -> int:
        """Return the number of forget examples, 0 where no row has epsilon."""
        rows = self.content["cells"][self.name]["rows"].values()
        return next((len(row["epsilon"]) for row in rows if row.get("epsilon")), 0)

    def epsilon_cap(self) -> float:
        """Return the epsilon of an example that an attack tells apart without error."""
        return float((self.settings("scoring")["scoring"] or {}).get("epsilon_cap", EPSILON_CAP))

    def value(self, name: str | None, metric: str) -> float | None:
        """Return a metric of a method or reference, None where it has none."""
        return self._number(name, metric, "value")

    def _number(self, name: str | None, metric: str, kind: str) -> float | None:
        found = self._row(name).get("values", {}).get(metric, {}).get(kind)
        return None if found is None else float(found)

    def utility(self, name: str | None) -> float | None:
        """Return model utility; of a network without pretraining that of the retain set, None where there is none."""
        whole = self.value(name, "model_utility")
        return self.value(name, RETAIN_UTILITY) if whole is None else whole

    def most_epochs(self, method_id: str) -> str | None:
        """Return the name of a method's row with the most epochs."""
        chosen = [(int(m["constants"]["EPOCHS"]), m["name"]) for m in self._of(method_id) if "EPOCHS" in m["constants"]]
        return max(chosen)[1] if chosen else None

    def error(self, name: str | None, metric: str) -> float:
        """Return the standard error of a metric, by its 95 % interval; NaN where none is known."""
        interval = self._row(name).get("values", {}).get(metric, {}).get("interval")
        return float(interval[1] - interval[0]) / (2 * Z_95) if interval and None not in interval else math.nan

    def spread(self, name: str, metric: str) -> float | None:
        """Return the standard deviation of a metric over runs."""
        return self._number(name, metric, "standard_deviation")

    def known(self, metric: str, *names: str | None) -> dict[str, float]:
        """Return the metric of those of `names` that have it."""
        found = {name: self.value(name, metric) for name in names if name is not None}
        return {name: value for name, value in found.items() if value is not None}

    def says(self, name: str, hard: bool, statement: str, holds: "Decision", numbers: str) -> "Ordering":
        """Return what this cell says of a statement."""
        return Ordering(name, self.name, hard, statement, None if holds is None else bool(holds), numbers)

    def forget_by(self) -> str:
        return str(self.content["cells"][self.name]["settings"]["splits"]["forget"]["by"])


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
    find: "Find"

    def check(self, views: Sequence[CellView]) -> Iterator[Ordering]:
        """Yield the statement for every place that has its values, else once with what is missing."""
        found = list(self.find(views))
        for cell, holds, numbers in found:
            yield Ordering(self.id, cell, self.hard, self.statement, holds, numbers)
        if not found:
            reason = f"not in this benchmark: needs {self.needs}"
            yield Ordering(self.id, EVERY_CELL, self.hard, self.statement, None, reason)


Find = Callable[[Sequence[CellView]], Found]
BENCHMARK_RULES: list[BenchmarkRule] = []


def rule(name: str, *, hard: bool, needs: str) -> Callable[[Find], Find]:
    """Add the decorated function to the rules as their `find`; its docstring is the statement."""

    def add(find: Find) -> Find:
        BENCHMARK_RULES.append(BenchmarkRule(name, hard, (find.__doc__ or "").removesuffix("."), needs, find))
        return find

    return add


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
