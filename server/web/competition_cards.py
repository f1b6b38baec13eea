"""Competitions as the first page lists them: in groups by what one can do there, each with its best score."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from server.competitions.lifecycle import is_revealed
from server.db import now
from server.leaderboard.summaries import Summary, summary
from server.models.competition import Competition, CompetitionState

S = CompetitionState
NOT_PUBLIC = (S.DRAFT, S.PREPARING)
GROUPS = ("Open", "Opening soon", "Closed, being decided", "Finished", "Not public yet")


@dataclass(frozen=True)
class Card:
    """One competition."""

    competition: Competition
    group: str
    board: Summary
    is_mine: bool
    has_results: bool


def make_card(session: Session, competition: Competition, *, mine: Collection[str]) -> Card:
    return Card(
        competition=competition,
        group=_group(competition),
        board=summary(session, competition),
        is_mine=competition.id in mine,
        has_results=is_revealed(competition),
    )


def grouped(cards: Sequence[Card]) -> list[tuple[str, list[Card]]]:
    """Return the groups that have competitions, what can be entered first; in the open one, what ends next first."""
    found = [(name, [card for card in cards if card.group == name]) for name in GROUPS]
    ordered = [
        (name, sorted(group, key=lambda card: card.competition.closes_at) if name == GROUPS[0] else group)
        for name, group in found
    ]
    return [(name, group) for name, group in ordered if group]


def ends_next(entered: Sequence[Competition]) -> Competition | None:
    """Return which of these open competitions closes next."""
    still_open = [c for c in entered if c.state == S.OPEN and c.closes_at > now()]
    return min(still_open, key=lambda c: c.closes_at, default=None)


def _group(competition: Competition) -> str:
    state = S(competition.state)
    if state in NOT_PUBLIC:
        return GROUPS[4]
    if state in (S.READY, S.OPEN):
        if competition.closes_at <= now():
            return GROUPS[2]
        return GROUPS[0] if state == S.OPEN or competition.opens_at <= now() else GROUPS[1]
    return GROUPS[2] if state in (S.CLOSED, S.PROVISIONAL) else GROUPS[3]
