"""The rules of a board: best score first, equal scores share a rank, the earlier one is listed first.

Pure: entries in, rows out. Only teams that compete take a rank; the organiser's baselines and the exact-retraining
oracle stand between them as references, and what is disqualified stands at the end.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RowKind(StrEnum):
    TEAM = "team"
    BASELINE = "baseline"  # the organiser's own entry
    ORACLE = "oracle"  # a second, independent set of retrained models, scored like a submission
    DISQUALIFIED = "disqualified"


@dataclass(frozen=True)
class Entry:
    """The best of one team, before it is ranked."""

    team_id: str
    team: str
    kind: RowKind
    score: float | None
    submission_id: str | None = None
    received_at: datetime | None = None  # of the best submission: breaks ties in the listing, not in the rank
    interval_low: float | None = None
    interval_high: float | None = None
    tied_group: int | None = None
    entries: int = 0
    last_entry_at: datetime | None = None
    mode: str = "function"  # notebook: its runs are not independent of each other


@dataclass(frozen=True)
class Row:
    """One line of a board. `rank` is None for references and for what is disqualified."""

    rank: int | None
    tied_group: int | None
    share_of_oracle: float | None
    entry: Entry


def rank(entries: Iterable[Entry], *, oracle: float | None, show_ties: bool = False) -> list[Row]:
    """Return the rows of a board in the order in which they are listed. An entry without a score has no row.

    oracle: score of the exact-retraining oracle; every row tells its share of it.
    show_ties: number the groups of teams that the scorer's paired test does not tell apart.
    """
    scored = sorted((entry for entry in entries if _is_number(entry.score)), key=_order)
    ranks = _shared_ranks([entry for entry in scored if entry.kind is RowKind.TEAM])
    groups = _tied_groups([entry for entry in scored if entry.kind is RowKind.TEAM]) if show_ties else {}
    return [
        Row(
            rank=ranks.get(entry.team_id),
            tied_group=groups.get(entry.team_id),
            share_of_oracle=entry.score / oracle if oracle and entry.score is not None else None,
            entry=entry,
        )
        for entry in scored
    ]


def _is_number(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def _order(entry: Entry) -> tuple[bool, float, bool, float, str]:
    """Disqualified last; then the better score; at equal scores a reference, then the earlier submission."""
    received = entry.received_at.timestamp() if entry.received_at else 0.0
    return (
        entry.kind is RowKind.DISQUALIFIED,
        -(entry.score or 0.0),
        entry.kind is RowKind.TEAM,
        received,
        entry.team_id,
    )


def _shared_ranks(teams: Sequence[Entry]) -> dict[str, int]:
    """Return "1, 2, 2, 4": a rank is one more than the number of teams that are strictly better."""
    ranks: dict[str, int] = {}
    shared = 1
    for place, entry in enumerate(teams, start=1):
        if place == 1 or entry.score != teams[place - 2].score:
            shared = place
        ranks[entry.team_id] = shared
    return ranks


def _tied_groups(teams: Sequence[Entry]) -> dict[str, int]:
    """Return the scorer's groups, numbered from 1 down the board; an entry that was never compared has none."""
    numbers: dict[int, int] = {}
    return {
        entry.team_id: numbers.setdefault(entry.tied_group, len(numbers) + 1)
        for entry in teams
        if entry.tied_group is not None
    }
