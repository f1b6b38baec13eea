"""[report] of the competition file: metrics beside the score, who sees them, and what they need stored."""

from copy import deepcopy
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from lethe.competition.metric_requests import check_request, levels_for_metric
from lethe.competition.section import Section
from lethe.competition.task import PROBED_LEVEL
from lethe.errors import AppError

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


def ids_as_tables(value: Any) -> Any:
    """Return a list in which each id has become a table, and tables stay; anything else as it is."""
    return [{"id": each} if isinstance(each, str) else each for each in value] if isinstance(value, list) else value


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
        return ids_as_tables(value)

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
