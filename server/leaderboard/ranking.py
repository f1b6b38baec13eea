"""The rules of a board: best score first, equal scores share a rank, the earlier one is listed first.

Pure: entries in, rows out. Only teams that compete take a rank; the organiser's baselines and the exact-retraining
oracle stand between them as references, a team with an unconfirmed score stands where its score puts it, and what is
disqualified stands at the end. Metrics that an organiser shows beside the score never rank.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from math import isfinite
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metric
from server.competitions.stored_file import stored_file
from server.disclosure import gate
from server.disclosure.gate import ShownNumber, share_of
from server.metric_results import metric_results
from server.models.competition import Competition

EPOCH = datetime.fromtimestamp(0, UTC)


class RowKind(StrEnum):
    TEAM = "team"
    BASELINE = "baseline"  # the organiser's own entry
    ORACLE = "oracle"  # a second, independent set of retrained models, scored like a submission
    UNCONFIRMED = "unconfirmed"  # a team whose score takes no rank until an organiser confirms it
    DISQUALIFIED = "disqualified"


class Entry(NamedTuple):
    """The best of one team, before it is ranked."""

    team_id: str
    team: str
    kind: RowKind
    score: ShownNumber | None
    submission_id: str | None = None
    received_at: datetime | None = None  # of the best submission: breaks ties in the listing, not in the rank
    interval_low: ShownNumber | None = None
    interval_high: ShownNumber | None = None
    tied_group: int | None = None
    entries: int = 0
    last_entry_at: datetime | None = None
    mode: str = "function"  # notebook: its runs are not independent of each other


class Row(NamedTuple):
    """One line of a board. `rank` is None for references, for unconfirmed scores and for what is disqualified."""

    rank: int | None
    tied_group: int | None
    share_of_oracle: ShownNumber | None
    entry: Entry


def rank(entries: Iterable[Entry], *, oracle: float | None, show_ties: bool = False) -> list[Row]:
    """Return the rows of a board in the order in which they are listed. An entry without a score has no row.

    oracle: score of the exact-retraining oracle; every row tells its share of it.
    show_ties: number the groups of teams that the scorer's paired test does not tell apart.
    """
    scored = sorted((entry for entry in entries if entry.score is not None and isfinite(entry.score)), key=_order)
    groups = _tied_groups(scored) if show_ties else {}
    rows, place, shared, before = [], 0, 0, None
    for entry in scored:
        score = entry.score or 0.0
        is_ranked = entry.kind is RowKind.TEAM
        if is_ranked:
            place += 1
            if score != before:  # "1, 2, 2, 4": one more than the number of teams that are strictly better
                shared, before = place, score
        share = share_of(entry.score, oracle)
        rows.append(Row(shared if is_ranked else None, groups.get(entry.team_id), share, entry))
    return rows


def _order(entry: Entry) -> tuple[bool, float, bool, datetime, str]:
    """Disqualified last; then the better score; at equal scores a reference, then the earlier submission."""
    kind = entry.kind
    return (
        kind is RowKind.DISQUALIFIED,
        -(entry.score or 0.0),
        kind is RowKind.TEAM,
        entry.received_at or EPOCH,
        entry.team_id,
    )


def _tied_groups(scored: Sequence[Entry]) -> dict[str, int]:
    """Return the scorer's groups, of teams, numbered from 1 down the board; one that was never compared has none."""
    numbers: dict[int, int] = {}
    return {
        entry.team_id: numbers.setdefault(entry.tied_group, len(numbers) + 1)
        for entry in scored
        if entry.kind is RowKind.TEAM and entry.tied_group is not None
    }


class Try(NamedTuple):
    """A scored submission."""

    submission_id: str
    received_at: datetime
    score: float
    mode: str = "function"
    is_unconfirmed: bool = False


class Rung(NamedTuple):
    """What is shown after a submission: the team's score, and the submission that last moved it."""

    submission_id: str
    received_at: datetime
    score: float
    mode: str
    is_unconfirmed: bool


def climb(tries: Iterable[Try], *, step: float) -> dict[str, Rung]:
    """Return what is shown after each submission of one team, in the order of receipt, by submission id."""
    shown: dict[str, Rung] = {}
    present: Rung | None = None
    for attempt in tries:
        if present is None or attempt.score > present.score + step:
            score = round(attempt.score / step) * step
            present = Rung(attempt.submission_id, attempt.received_at, score, attempt.mode, attempt.is_unconfirmed)
        shown[attempt.submission_id] = present
    return shown


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
