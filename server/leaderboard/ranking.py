"""The rules of a board: best score first, equal scores share a rank, the earlier one is listed first.

Pure: entries in, rows out. Only teams that compete take a rank; the organiser's baselines and the exact-retraining
oracle stand between them as references, a team with an unconfirmed score stands where its score puts it, and what is
disqualified stands at the end.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from typing import NamedTuple

from server.disclosure.gate import ShownNumber, share_of

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
