"""The benchmark file: methods x cells, as TOML, checked before anything is computed.

A cell is a competition file with overrides; a method is one of the catalogue, with constants, or a file of one's own.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lethe.competition.file import Slug
from lethe.competition.report_section import MAX_KEPT, MetricRequest, check_request, levels_for_metric
from lethe.competition.task import PROBED_LEVEL
from lethe.errors import InvalidInput
from lethe.methods.rendering import render
from lethe.tuning.study import Search, SearchPlan

SCORES = ("score", "f")  # computed by the scorer itself, not by the registry of metrics
TABLE_METRICS = ("retdev", "umia", "indiscernibility", "rte")
Recipe = Literal["none", "early-stop", "cutmix", "both"]
Scalar = bool | int | float | str


class InvalidBenchmarkFile(InvalidInput):
    slug, title = "invalid-benchmark-file", "The benchmark file has mistakes"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MethodEntry(BaseModel):
    """A method: `method`, an id of the catalogue, or `file`, relative to the benchmark file. name: its row.

    tune: whether `[tune]` searches its constants. Every other key sets a constant, which is then not searched.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    method: str | None = None
    file: Path | None = None
    name: str | None = Field(default=None, min_length=1, max_length=80)
    tune: bool = True

    @model_validator(mode="after")
    def _is_one_method(self) -> Self:
        if (self.method is None) == (self.file is None):
            raise ValueError("a method needs `method`, an id of the catalogue, or `file`, and not both")
        if self.method is not None:
            try:
                render(self.method, self.constants)
            except InvalidInput as error:
                raise ValueError(error.detail) from error
            except Exception as error:
                raise ValueError(getattr(error, "detail", str(error))) from error
        return self

    @property
    def constants(self) -> dict[str, Scalar]:
        return dict(self.model_extra or {})

    @property
    def label(self) -> str:
        """Return the name of the method's row: its own, or the id with the constants that were set."""
        if self.name:
            return self.name
        start = self.method if self.file is None else self.file.stem
        return " ".join([str(start), *(f"{name}={value}" for name, value in self.constants.items())])


class Cell(_Section):
    """A competition file, relative to the benchmark file, and what is different here.

    Each key of dataset, training and splits replaces the competition's of that name; network replaces it wholly: its
    keys beside `name` are the network's options. recipe: what Goel et al. 2023 vary in the original's training.
    seeds: as the benchmark's, for this cell alone.
    """

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._=-]{0,79}$")
    competition: Path
    dataset: dict[str, Any] = Field(default_factory=dict)
    network: dict[str, Any] | None = None
    training: dict[str, Any] = Field(default_factory=dict)
    splits: dict[str, Any] = Field(default_factory=dict)
    recipe: Recipe = "none"
    seeds: int | None = Field(default=None, ge=1)

    @field_validator("network")
    @classmethod
    def _network_has_a_name(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and not isinstance(value.get("name"), str):
            raise ValueError('a network needs a name, such as { name = "resnet20" }')
        return value


class Tables(_Section):
    """groups: metrics by which methods are grouped. pareto: the metrics of the frontier. timing: the last column.

    contrast: two methods whose difference by the score is tested by itself; to be declared before the runs.
    """

    groups: tuple[str, ...] = ("retdev", "indiscernibility")
    pareto: tuple[str, ...] = ("retdev", "indiscernibility")
    timing: Literal["rte"] = "rte"
    contrast: tuple[str, str] | None = None


class Tune(_Section):
    """The search of every method's constants, alike for all; see SearchPlan for what is not said here.

    split_seed: of the splits that are searched on, other than those that are reported. searches: how many there are,
    each on a split of its own, of seeds split_seed and on; the reported splits of a task take them in turn, so that the
    spread over splits holds that of the search. runs: also how many retrained models such a split has.
    """

    trials: int = Field(default=30, ge=1)
    budget_epochs: float | None = Field(default=None, gt=0)
    search: Search = "random"
    objective: str = "score"
    runs: int = Field(default=16, ge=2, le=1024)
    halvings: int = Field(default=2, ge=0, le=6)
    points: int = Field(default=3, ge=1)
    seed: int = Field(default=0, ge=0)
    split_seed: int = Field(default=1_000_003, ge=0)
    searches: int = Field(default=1, ge=1, le=16)

    @model_validator(mode="after")
    def _has_an_objective(self) -> Self:
        if self.objective not in SCORES:
            check_request(self.objective, {})
        return self

    @property
    def plan(self) -> SearchPlan:
        return SearchPlan(**self.model_dump(exclude={"split_seed", "searches"}))


class BenchmarkFile(_Section):
    """One benchmark.

    seeds: 1: all runs start from one original model (reuse-n-1); n_models: each from its own (reuse-n-n).
    run_wall_time_s: after so long a run fails, seconds. split_seed: cuts the data of competitions that name no seed.
    keep_weights: first runs of a method, and as many references, whose weights metrics of level 4 compare.
    """

    slug: Slug
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    seeds: int = Field(default=1, ge=1)
    n_models: int = Field(default=32, ge=2, le=65_536)
    metrics: tuple[MetricRequest, ...] = Field(default=(), validate_default=True)
    run_wall_time_s: float = Field(default=600.0, gt=0)
    split_seed: int = Field(default=0, ge=0)
    keep_weights: int = Field(default=0, ge=0, le=MAX_KEPT)
    cell: tuple[Cell, ...] = Field(min_length=1)
    tables: Tables = Tables()
    tune: Tune | None = None

    @field_validator("methods", mode="before")
    @classmethod
    def _ids_as_tables(cls, value: Any) -> Any:
        return [{"method": each} if isinstance(each, str) else each for each in value] if _is_list(value) else value

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_as_tables(cls, value: Any) -> Any:
        if not _is_list(value):
            return value
        given = [{"id": each} if isinstance(each, str) else each for each in value]
        there = {each.get("id") for each in given if isinstance(each, dict)}
        always = ("score", "f", *(["klom_closed"] if "klom" in there else []), *TABLE_METRICS)
        return given + [{"id": name} for name in always if name not in there]

    @model_validator(mode="after")
    def _everything_can_be_computed(self) -> Self:
        for request in self.metrics:
            if request.id in SCORES:
                continue
            check_request(request.id, request.parameters)
            if PROBED_LEVEL in levels_for_metric(request.id) and not self.keep_weights:
                raise ValueError(
                    f"metrics: {request.id} needs weights (level {PROBED_LEVEL}), and keep_weights is 0: set it to how "
                    f"many runs of a method are probed, 1 to {MAX_KEPT}"
                )
        asked = {request.id for request in self.metrics}
        for name in (*self.tables.groups, *self.tables.pareto):
            if name not in asked:
                raise ValueError(f"tables name {name!r}, which is not among metrics: {', '.join(sorted(asked))}")
        if not {self.seeds, *(cell.seeds for cell in self.cell)} <= {1, self.n_models, None}:
            raise ValueError(f"seeds must be 1 or n_models ({self.n_models}): a run has the one original or its own")
        labels = [entry.label for entry in self.methods]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"method {twice!r} is there twice: give one of them another `name`")
        if unknown := sorted(set(self.tables.contrast or ()) - set(labels)):
            raise ValueError(f"tables.contrast names {unknown[0]!r}, which is no method here: {', '.join(labels)}")
        return self

    @property
    def capture_levels(self) -> tuple[int, ...]:
        """Return the levels above 0 whose arrays are stored of every model; losses always, for the main table."""
        ids = [request.id for request in self.metrics if request.id not in SCORES]
        ids += [self.tune.objective] if self.tune and self.tune.objective not in SCORES else []
        return tuple(sorted({1} | {level for name in ids for level in levels_for_metric(name)} - {0}))


def parse_benchmark(text: str, *, source: str = "benchmark file") -> BenchmarkFile:
    """Return the checked benchmark in TOML `text`. Raises InvalidBenchmarkFile naming each wrong value."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidBenchmarkFile(f"{source}: not TOML: {error}") from error
    try:
        return BenchmarkFile.model_validate({"metrics": []} | data)
    except ValidationError as error:
        raise InvalidBenchmarkFile.from_validation(error, source=source) from error


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
