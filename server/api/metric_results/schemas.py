"""Metrics beside the score as JSON."""

from typing import Any

from pydantic import BaseModel, Field

from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metric
from server.api.schema import Out
from server.disclosure import gate
from server.disclosure.gate import ShownNumber, ShownTable, ShownText
from server.models.metric_result import MetricResult


class MetricOut(Out):
    """One entry of the catalogue."""

    id: str = Field(examples=["klom"])
    title: str
    unit: str
    direction: str = Field(description="higher, lower, towards retrained, none")
    capture_levels: list[int]
    source: str
    formula: str
    paper_and_code: str


class MetricValue(BaseModel):
    """One metric of a submission, beside the same metric of the oracle and of the original model."""

    id: str = Field(examples=["klom"])
    title: str
    unit: str
    direction: str
    parameters: dict[str, Any]
    value: ShownNumber | None
    interval_low: ShownNumber | None = None
    interval_high: ShownNumber | None = None
    standard_deviation: ShownNumber | None = Field(default=None, description="over runs")
    oracle: ShownNumber | None = Field(description="of exact retraining with other seeds")
    original: ShownNumber | None = Field(description="of the original model, unchanged")
    waiting: bool = Field(description="not computed yet")
    not_computed: ShownText
    notes: list[ShownText]
    table: ShownTable

    @classmethod
    def of(cls, row: MetricResult, *, is_organiser: bool) -> "MetricValue":
        entry = metric(row.metric_id)
        return cls(
            id=row.metric_id,
            title=entry.title,
            unit=entry.unit,
            direction=entry.direction.value,
            parameters=row.parameters,
            waiting=row.computed_at is None,
            **vars(gate.metric(row, exact=is_organiser)),
        )


class SubmissionMetrics(BaseModel):
    """The metrics of one submission on one split."""

    split: Visibility
    n_models: int = Field(description="N: metrics of different N are not compared")
    metrics: list[MetricValue]


class CompetitionMetrics(BaseModel):
    """Metrics of all scored submissions of a competition, for organisers."""

    split: Visibility
    metrics: list[str]
    submissions: dict[str, dict[str, float | None]] = Field(description="submission id -> metric id -> value")


class Recompute(BaseModel):
    """What to compute again."""

    only_stale: bool = Field(default=True, description="only what an older version of a metric computed, or is missing")


class Recomputed(BaseModel):
    """How many evaluations are computed again."""

    evaluations: int
