"""`[report]`: what is computed and shown beside the score."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from lethe.competition.baseline_requests import Baseline, ids_as_tables
from lethe.competition.metric_requests import check_request, levels_for_metric
from lethe.competition.section import Section


class MetricRequest(Section):
    """A metric beside the score. Every other key is one of its parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Report(Section):
    """Metrics beside the score (docs/metrics): computed after it, never ranked by."""

    metrics: tuple[MetricRequest, ...] = Field(default=(), description='ids, or tables as { id = "zrf", seeds = 5 }')
    capture: int | None = Field(
        default=None, ge=0, le=3, description="levels of arrays to store; default: what the metrics need"
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
    def _metrics_can_be_computed(self) -> "Report":
        for request in self.metrics:
            check_request(request.id, request.parameters)
        return self

    @property
    def capture_levels(self) -> tuple[int, ...]:
        """Return the levels above 0 whose arrays every model's evaluation stores."""
        needed = {level for request in self.metrics for level in levels_for_metric(request.id)}
        given = set(range(1, self.capture + 1)) if self.capture is not None else set()
        return tuple(sorted((needed | given) - {0}))
