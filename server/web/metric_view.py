"""Metrics beside the score, as a submission's page shows them."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.metrics.core.metric_text import table_lines
from lethe.metrics.core.registry import metric
from server.api.metric_results import MetricValue
from server.metric_results import metric_results
from server.models.submission import Submission

BETTER = {"higher": "↑ higher", "lower": "↓ lower", "towards retrained": "→ as retrained", "none": "–"}
BETTER_IN_WORDS = {
    "higher": "higher is better",
    "lower": "lower is better",
    "towards retrained": "best as retrained",
    "none": "",
}


@dataclass(frozen=True)
class MetricLine:
    """One line: the value beside its references, what the metric is, and its table, which organisers alone have."""

    value: MetricValue
    better: str
    formula: str
    source: str
    table: list[str]


@dataclass(frozen=True)
class MetricTable:
    """The metrics on one split."""

    split: str
    lines: list[MetricLine]


def metric_tables(session: Session, submission: Submission, *, is_organiser: bool) -> list[MetricTable]:
    """Return a table for each split whose metrics the viewer may see and which has any."""
    tables = []
    for visibility in (Visibility.PUBLIC, Visibility.PRIVATE):
        try:
            rows = metric_results.of_submission(session, submission, visibility, is_organiser=is_organiser)
        except NotFound:
            continue
        if rows:
            values = [MetricValue.of(row, is_organiser=is_organiser) for row in rows]
            tables.append(MetricTable(visibility.value, [_line(value) for value in values]))
    return tables


def _line(value: MetricValue) -> MetricLine:
    entry = metric(value.id)
    return MetricLine(
        value=value,
        better=BETTER[value.direction],
        formula=entry.formula,
        source=entry.source,
        table=table_lines(value.table),
    )
