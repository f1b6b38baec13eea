"""Metrics that an organiser lets the board show beside the score. They never rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metric
from server.competitions.stored_file import stored_file
from server.leaderboard.ranking import Entry, RowKind
from server.metric_results import service as metric_results
from server.metric_results.service import rounded
from server.models.competition import Competition


class ColumnValue(NamedTuple):
    """A metric of one submission, with its interval where it has one."""

    value: float
    interval_low: float | None = None
    interval_high: float | None = None

    def as_shown(self) -> "ColumnValue":
        """Return the value as participants see it."""
        ends = rounded(self.interval_low), rounded(self.interval_high)
        return ColumnValue(round(self.value, metric_results.SHOWN_DIGITS), *ends)


@dataclass(frozen=True)
class BoardColumn:
    """A metric of every submission on a board, beside that of exact retraining and of the original model.

    values: by submission id; what is not computed has none.
    """

    id: str
    title: str
    unit: str
    direction: str
    oracle: float | None
    original: float | None
    values: Mapping[str, ColumnValue]

    def get(self, entry: Entry) -> ColumnValue | None:
        """Return what stands in a line."""
        if entry.kind is RowKind.ORACLE:
            return None if self.oracle is None else ColumnValue(self.oracle)
        return self.values.get(entry.submission_id or "")

    def as_shown(self) -> "BoardColumn":
        """Return the column as participants see it: rounded."""
        values = {submission: value.as_shown() for submission, value in self.values.items()}
        return replace(self, oracle=rounded(self.oracle), original=rounded(self.original), values=values)


def board_columns(
    session: Session, competition: Competition, visibility: Visibility, submission_ids: Sequence[str]
) -> tuple[BoardColumn, ...]:
    """Return the columns of the competition's report, with the values of these submissions, as organisers see them."""
    requests = stored_file(competition).report.column_requests
    columns = []
    for request in requests:
        entry = metric(request.id)
        rows = metric_results.of_submissions(session, visibility, submission_ids, request)
        values = {
            row.submission_id: ColumnValue(row.value, row.interval_low, row.interval_high)
            for row in rows
            if row.value is not None
        }
        columns.append(
            BoardColumn(
                id=entry.id,
                title=entry.title,
                unit=entry.unit,
                direction=entry.direction.value,
                oracle=next((row.oracle for row in reversed(rows) if row.oracle is not None), None),
                original=next((row.original for row in reversed(rows) if row.original is not None), None),
                values=values,
            )
        )
    return tuple(columns)


def columns_for_participants(
    competition: Competition, visibility: Visibility, columns: Sequence[BoardColumn]
) -> tuple[BoardColumn, ...]:
    """Return the columns that everybody may see: those that teams see of their own submissions, rounded."""
    if not metric_results.shown_to_team(stored_file(competition), competition, visibility):
        return ()
    return tuple(column.as_shown() for column in columns)
