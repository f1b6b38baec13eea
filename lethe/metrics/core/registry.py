"""Every metric by its id.

A metric is a pure function of arrays and one `Metric(...)` at the top level of a module: of any module in a family's
folder, or of one that an installed package names under the entry point `lethe.metrics`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, getdoc, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict

from lethe.metrics.core.array_catalogue import ARRAYS, CaptureLevel, Side
from lethe.metrics.core.derived_arrays import DERIVED
from lethe.metrics.core.invalid_input import UnknownMetric
from lethe.metrics.core.result import MetricResult

FOLDER = Path(__file__).parents[1]
SHARED = frozenset({"core", "attacks", "scoring"})  # folders of what metrics use; every other folder is a family
ENTRY_POINTS = "lethe.metrics"


class Direction(StrEnum):
    """Which way is better. TOWARDS_RETRAINED: the value of the retrained models is the aim, not an extreme."""

    HIGHER = "higher"
    LOWER = "lower"
    TOWARDS_RETRAINED = "towards retrained"
    NONE = "none"


class Scope(StrEnum):
    """What one value describes: a submission on a split, several submissions on one split, or a benchmark's cells."""

    SUBMISSION = "submission"
    COMPARISON = "comparison"
    BENCHMARK = "benchmark"


class Resampling(StrEnum):
    """How the interval over models is made.

    RUNS: half of the values per run are left out. MODELS: the metric is computed again on half of the models.
    OWN: the metric's function returns its interval. NONE: no interval.
    """

    RUNS = "runs"
    MODELS = "models"
    OWN = "own"
    NONE = "none"


class Parameters(BaseModel):
    """Base of a metric's parameters; the defaults are the metric's defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Feature:
    """What several metrics need, computed once per side in one evaluation (an attack's accuracy on every model).

    function: takes the named arrays of one side, then those of the retrained models (`against`), then the named shared
    arrays, then the parameters by keyword; returns an array whose first axis is the models, unless `against` is named:
    then it describes both sides together and may be anything.
    by_run: the number of the run is part of the seed, so that copies of one model differ.
    """

    name: str
    function: Callable[..., Any]
    arrays: tuple[str, ...]
    shared: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    by_run: bool = False
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Need:
    """One argument of a metric's function: an array of the catalogue, or a feature, of one side.

    optional: None is passed where an array is missing.
    """

    array: str | Feature
    side: Side = Side.UNLEARNED
    optional: bool = False

    @property
    def sources(self) -> tuple[tuple[Side, str], ...]:
        """Return the arrays behind this argument: the side that is asked for each, and its name."""
        if not isinstance(self.array, Feature):
            return ((self.side, self.array),)
        against = tuple((Side.RETRAINED, name) for name in self.array.against)
        return (*((self.side, name) for name in (*self.array.arrays, *self.array.shared)), *against)

    @property
    def array_names(self) -> tuple[str, ...]:
        """Return the names of the arrays behind this argument."""
        return tuple(name for _, name in self.sources)


def both_sides(array: str | Feature, *, retrained_optional: bool = False) -> dict[str, Need]:
    """Return the needs of a metric of one array or feature of the unlearned and of the retrained models."""
    return {"unlearned": Need(array), "retrained": Need(array, Side.RETRAINED, retrained_optional)}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric, with everything that a page, a command or a task needs to know about it.

    id: by default the function's name.
    function: called with the arrays of `needs` by keyword, then with the parameters by keyword.
    paired: run i of the unlearned side belongs to retrained (and original) model i, and their numbers are equal.
    unequal_too: paired where the numbers of models are equal, and defined where they are not.
    fewest_models: of the unlearned and of the retrained side.
    ideal: the value of perfect unlearning where it does not depend on the retrained models, else None.
    paper_and_code: where the paper and its published program differ, and what is done here; empty if they agree.
    bounds: the least and the greatest value possible; an interval is cut off there.
    n_resamples: replicates of the interval; fewer for metrics that are costly to compute again.
    """

    title: str
    function: Callable[..., MetricResult]
    id: str = ""
    needs: Mapping[str, Need] = field(default_factory=dict)
    unit: str
    direction: Direction = Direction.LOWER
    source: str
    formula: str
    paper_and_code: str = ""
    defaults: type[Parameters] = Parameters
    paired: bool = False
    unequal_too: bool = False
    fewest_models: int = 1
    per_example: bool = False
    scope: Scope = Scope.SUBMISSION
    resampling: Resampling = Resampling.NONE
    n_resamples: int = 100
    ideal: float | None = None
    bounds: tuple[float, float] = (float("-inf"), float("inf"))
    version: int = 1

    def __post_init__(self) -> None:
        """Take the function's name where no id is given."""
        if not self.id:
            object.__setattr__(self, "id", self.function.__name__)

    @property
    def levels(self) -> tuple[CaptureLevel, ...]:
        """Return the capture levels whose arrays this metric cannot do without, sorted."""
        names = {name for need in self.needs.values() if not need.optional for name in need.array_names}
        return tuple(sorted({(DERIVED.get(name) or ARRAYS[name]).level for name in names}))

    @property
    def level(self) -> CaptureLevel:
        """Return the highest capture level needed."""
        return max(self.levels, default=CaptureLevel.CONFIDENCES)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Return the sides whose arrays are needed, in the order of `Side`."""
        used = {side for need in self.needs.values() for side, _ in need.sources}
        return tuple(side for side in Side if side in used)


@cache
def metrics() -> Mapping[str, Metric]:
    """Return every metric by id, by family and module; those of installed packages come last.

    Raises ValueError, naming the module, for a metric that is not well-formed or an id that two metrics have.
    """
    found: dict[str, Metric] = {}
    for module in (*map(import_module, metric_modules()), *_installed()):
        for entry in metrics_of(module):
            if found.setdefault(entry.id, entry) is not entry:
                raise ValueError(f"{module.__name__}: another metric has the id {entry.id!r} already")
    return found


def metric_modules() -> list[str]:
    """Return the names of the modules in the families' folders, sorted; a helper beside its metrics has none."""
    return [
        f"lethe.metrics.{family}.{path.stem}"
        for family in families()
        for path in sorted((FOLDER / family).glob("[!_]*.py"))
    ]


def families() -> list[str]:
    """Return the names of the families' folders, sorted."""
    return sorted({path.parent.name for path in FOLDER.glob("*/[!_]*.py")} - SHARED)


def _installed() -> Iterator[ModuleType]:
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        module = point.load()
        if not isinstance(module, ModuleType) or not metrics_of(module):
            raise ValueError(
                f"the entry point {point.name!r} of {ENTRY_POINTS} names {point.value}: no Metric is there"
            )
        yield module


def metrics_of(module: ModuleType) -> list[Metric]:
    """Return the metrics at a module's top level. Raises ValueError, naming the module, if one is not well-formed."""
    found = [value for value in vars(module).values() if isinstance(value, Metric)]
    for entry in found:
        if fault := _fault(entry):
            raise ValueError(f"{module.__name__}: the metric {entry.id!r} {fault}")
    return found


def _fault(entry: Metric) -> str:
    """Return what a metric lacks, or nothing."""
    if not entry.id.isidentifier() or not entry.id.islower():
        return "needs an id of lower-case letters, digits and underscores"
    if empty := [name for name in ("title", "unit", "source", "formula") if not getattr(entry, name)]:
        return f"has no {empty[0]}"
    if not getdoc(entry.function):
        return "has a function without a docstring"
    if unknown := sorted(
        {name for need in entry.needs.values() for name in need.array_names} - ARRAYS.keys() - DERIVED.keys()
    ):
        return f"needs {unknown[0]!r}, which is not an array of lethe.metrics.core.array_catalogue"
    accepted = signature(entry.function).parameters
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in accepted.values()):
        return ""
    refused = sorted(entry.needs.keys() - accepted.keys())
    return f"has a function that takes no {refused[0]!r}" if refused else ""


def metric(metric_id: str) -> Metric:
    """Return one metric. Raises UnknownMetric, with the nearest ids, if there is none."""
    if (found := _in_its_module(metric_id)) is not None:
        return found
    known = metrics()
    if metric_id in known:
        return known[metric_id]
    near = get_close_matches(metric_id, known, n=3, cutoff=0.4)
    hint = f"; the nearest are {', '.join(near)}" if near else ""
    raise UnknownMetric(f"no metric is called {metric_id!r}{hint} (`lethe metrics` lists all)")


@lru_cache(maxsize=1024)  # strangers name metrics, too
def _in_its_module(metric_id: str) -> Metric | None:
    """Return the metric from the module that has its id in its text: the other modules take a second to load."""
    for name in metric_modules():
        text = FOLDER.joinpath(*name.split(".")[2:]).with_suffix(".py").read_text("utf-8")
        if f'"{metric_id}"' in text or f"function={metric_id}," in text:
            for entry in metrics_of(import_module(name)):
                if entry.id == metric_id:
                    return entry
    return None
