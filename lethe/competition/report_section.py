"""[report] of the competition file: metrics beside the score, who sees them, what they need stored.

The registry of metrics is loaded when a file asks for one; most files do not.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from lethe.competition.section import Section
from lethe.competition.task import IMAGES_ONLY, LEVELS, PROBED_LEVEL, Kind
from lethe.errors import AppError

STORED_LEVELS = frozenset().union(*LEVELS.values())


def check_request(metric_id: str, parameters: Mapping[str, Any]) -> None:
    """Raise ValueError, with the nearest ids or the parameters there are, for what cannot be computed."""
    from lethe.metrics.core.metric_evaluation import checked_parameters  # noqa: PLC0415
    from lethe.metrics.core.registry import Scope, metric  # noqa: PLC0415

    entry = metric(metric_id)
    checked_parameters(entry, parameters)
    if entry.scope != Scope.SUBMISSION:
        raise ValueError(f"{metric_id} compares several submissions or cells: see `lethe compare` and benchmarks")
    if beyond := [int(level) for level in entry.levels if level not in STORED_LEVELS]:
        raise ValueError(f"{metric_id} needs arrays of level {beyond[0]}, which a competition does not store")


def require_metric_fits(metric_id: str, kind: Kind) -> None:
    """Raise ValueError unless evaluations of this kind of task store what the metric needs."""
    if what := lacking_for_metric(metric_id, kind):
        raise ValueError(f"report.metrics: {metric_id} needs {what}, which a task of kind {kind!r} does not have")


def require_metric_ranks(metric_id: str) -> None:
    """Raise ValueError for a metric without a better side, or one that needs weights, which come after the score."""
    from lethe.metrics.core.registry import Direction, metric  # noqa: PLC0415

    if metric(metric_id).direction is Direction.NONE:
        raise ValueError(f"ranking.by: no value of {metric_id} is better than another, so it cannot rank")
    if PROBED_LEVEL in levels_for_metric(metric_id):
        raise ValueError(f"ranking.by: {metric_id} needs weights of runs, which only a few keep, so it cannot rank")


def lacking_for_metric(metric_id: str, kind: Kind) -> str | None:
    """Return what the metric needs and evaluations of this kind of task do not store, or None."""
    from lethe.metrics.core.registry import metric  # noqa: PLC0415

    entry = metric(metric_id)
    beyond = [int(level) for level in entry.levels if int(level) not in LEVELS[kind]]
    if beyond:
        return f"arrays of level {beyond[0]}"
    images_only = [name for need in entry.needs.values() for name in need.array_names if name in IMAGES_ONLY]
    return f"the array `{images_only[0]}`" if images_only and kind != "image-classification" else None


def levels_for_metric(metric_id: str) -> tuple[int, ...]:
    """Return the capture levels that a metric needs."""
    from lethe.metrics.core.registry import metric  # noqa: PLC0415

    return tuple(int(level) for level in metric(metric_id).levels)


LABEL_LENGTH = 200
MAX_COLUMNS = 3
MAX_CAPTURE = 3  # arrays of higher levels are stored where a metric asks for them
MAX_KEPT = 8


class Baseline(BaseModel):
    """A method of `lethe methods list`. Every other key sets one of its constants."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str

    @model_validator(mode="after")
    def _can_be_rendered(self) -> Self:
        try:
            self.source()
        except AppError as error:
            raise ValueError(error.detail) from error
        if len(self.label) > LABEL_LENGTH:
            raise ValueError(
                f"{self.id} has settings of {len(self.label)} characters; at most {LABEL_LENGTH} are taken"
            )
        return self

    @property
    def settings(self) -> dict[str, Any]:
        return deepcopy(self.model_extra or {})

    @property
    def label(self) -> str:
        """The method and what is set: it names the reference line, and no two of a file are the same."""
        return " ".join([self.id, *(f"{name}={value}" for name, value in sorted(self.settings.items()))])

    def require_fits(self, kind: str) -> None:
        """Raise ValueError unless the method is for this kind of task."""
        from lethe.methods.catalogue import method_ids, method_task  # noqa: PLC0415

        if method_task(self.id) != kind:
            raise ValueError(
                f"report.baselines: {self.id} is for tasks of kind {method_task(self.id)!r}; those for {kind!r} are "
                f"{', '.join(method_ids(kind))}"
            )

    def source(self) -> str:
        """Return the submission's text. Raises NotFound or InvalidInput for what the method does not know."""
        from lethe.methods.rendering import render  # noqa: PLC0415

        return render(self.id, self.settings)


class MetricRequest(Section):
    """A metric beside the score. Every other key is one of its parameters."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    id: str

    @property
    def parameters(self) -> dict[str, Any]:
        return deepcopy(self.model_extra or {})


class Report(Section):
    """Metrics beside the score (docs/metrics), computed after it; those that [ranking] names rank as well."""

    metrics: tuple[MetricRequest, ...] = Field(default=(), description='ids, or tables as { id = "zrf", seeds = 5 }')
    columns: tuple[str, ...] = Field(
        default=(), max_length=MAX_COLUMNS, description="ids out of `metrics` that the leaderboard shows as columns"
    )
    capture: int | None = Field(
        default=None, ge=0, le=MAX_CAPTURE, description="levels of arrays to store; default: what the metrics need"
    )
    keep_weights: int = Field(
        default=0,
        ge=0,
        le=MAX_KEPT,
        description="first runs of a submission whose weights are kept for metrics of level 4, and as many references",
    )
    visible_to_participants: Literal["none", "public", "all"] = Field(
        default="none", description="public: a team sees the metrics of its own submissions on the public split"
    )
    baselines: tuple[Baseline, ...] = Field(
        default=(), description='methods submitted as reference lines: ids, or tables as { id = "scrub", LR = 0.001 }'
    )

    @field_validator("metrics", "baselines", mode="before")
    @classmethod
    def _ids_as_tables(cls, value: Any) -> Any:
        return [{"id": each} if isinstance(each, str) else each for each in value] if isinstance(value, list) else value

    @field_validator("baselines")
    @classmethod
    def _baselines_differ(cls, value: tuple[Baseline, ...]) -> tuple[Baseline, ...]:
        labels = [baseline.label for baseline in value]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(f"names {twice[0]!r} twice")
        return value

    @model_validator(mode="after")
    def _metrics_can_be_computed(self) -> Self:
        for request in self.metrics:
            if request.id == "score":
                raise ValueError("metrics: 'score' is what ranks and always shown; it needs no entry here")
            check_request(request.id, request.parameters)
        return self

    @model_validator(mode="after")
    def _probed_metrics_have_weights(self) -> Self:
        probed = [request.id for request in self.metrics if PROBED_LEVEL in levels_for_metric(request.id)]
        if probed and not self.keep_weights:
            raise ValueError(
                f"metrics: {probed[0]} needs weights of runs (level {PROBED_LEVEL}), and keep_weights is 0: set it to "
                f"how many runs are probed, 1 to {MAX_KEPT}"
            )
        return self

    @model_validator(mode="after")
    def _columns_are_metrics(self) -> Self:
        asked = [request.id for request in self.metrics]
        for name in self.columns:
            if asked.count(name) != 1:
                found = "is not among the metrics" if name not in asked else "is asked for with several parameters"
                raise ValueError(f"columns: {name!r} {found}; a column is a metric that `metrics` names once")
            if self.columns.count(name) > 1:
                raise ValueError(f"columns names {name!r} twice")
        return self

    @property
    def column_requests(self) -> tuple[MetricRequest, ...]:
        """Return the metrics that the leaderboard shows, in the order of its columns."""
        by_id = {request.id: request for request in self.metrics}
        return tuple(by_id[name] for name in self.columns)

    @property
    def capture_levels(self) -> tuple[int, ...]:
        """Return the levels above 0 whose arrays every model's evaluation stores; those of probes come later."""
        needed = {level for request in self.metrics for level in levels_for_metric(request.id)}
        given = set(range(1, self.capture + 1)) if self.capture is not None else set()
        return tuple(sorted((needed | given) - {0, PROBED_LEVEL}))
