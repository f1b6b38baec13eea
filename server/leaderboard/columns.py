"""Metrics that an organiser lets the board show beside the score. They never rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metric
from server.competitions.stored_file import stored_file
from server.disclosure import gate
from server.disclosure.gate import ShownNumber
from server.leaderboard.ranking import Entry, Row, RowKind
from server.metric_results import metric_results
from server.models.competition import Competition


@dataclass(frozen=True)
class Column:
    """A metric beside the score, and what it is of exact retraining and of the original model."""

    id: Annotated[str, Field(examples=["klom"])]
    title: str
    unit: str
    direction: Annotated[str, Field(description="higher, lower, towards retrained, none")]
    oracle: ShownNumber | None
    original: ShownNumber | None


@dataclass(frozen=True)
class ColumnValue:
    """A metric of one submission, with its interval where it has one."""

    value: ShownNumber | None
    interval_low: ShownNumber | None = None
    interval_high: ShownNumber | None = None


@dataclass(frozen=True)
class BoardColumn(Column):
    """A metric of every submission on a board. values: by submission id; what is not computed has none."""

    values: Mapping[str, ColumnValue]

    def get(self, entry: Entry) -> ColumnValue | None:
        """Return what stands in a line."""
        if entry.kind is RowKind.ORACLE:
            return None if self.oracle is None else ColumnValue(self.oracle)
        return self.values.get(entry.submission_id or "")

    def as_shown(self) -> "BoardColumn":
        """Return the column as everybody sees it, with fewer digits."""
        values = {
            submission: ColumnValue(*map(_shown, vars(value).values())) for submission, value in self.values.items()
        }
        return replace(self, oracle=_shown(self.oracle), original=_shown(self.original), values=values)


def board_row(row: Row, columns: Sequence[BoardColumn]) -> dict[str, Any]:
    """Return a row of a board as the API, exports and bundles have it. metrics: those computed, by a column's id."""
    shown = {"rank": row.rank, **row.entry._asdict(), "tied_group": row.tied_group}
    values = {column.id: column.get(row.entry) for column in columns}
    return shown | {
        "team_id": row.entry.team_id or None,
        "kind": row.entry.kind.value,
        "submission": shown.pop("submission_id"),
        "share_of_oracle": row.share_of_oracle,
        "metrics": {name: vars(value) for name, value in values.items() if value is not None},
    }


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
            row.submission_id: ColumnValue(*map(_exact, (row.value, row.interval_low, row.interval_high)))
            for row in rows
            if row.value is not None
        }
        columns.append(
            BoardColumn(
                id=entry.id,
                title=entry.title,
                unit=entry.unit,
                direction=entry.direction.value,
                oracle=next((_exact(row.oracle) for row in reversed(rows) if row.oracle is not None), None),
                original=next((_exact(row.original) for row in reversed(rows) if row.original is not None), None),
                values=values,
            )
        )
    return tuple(columns)


def columns_for_participants(
    competition: Competition, visibility: Visibility, columns: Sequence[BoardColumn]
) -> tuple[BoardColumn, ...]:
    """Return the columns that everybody may see: those that teams see of their own submissions."""
    if not gate.shows_metrics(competition, visibility):
        return ()
    return tuple(column.as_shown() for column in columns)


_exact = partial(gate.show_metric, exact=True)
_shown = partial(gate.show_metric, exact=False)
