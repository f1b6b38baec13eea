"""[[phases]] and [late] of the competition file: when submissions are taken, how many, and which of them count."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from lethe.competition.section import Section
from lethe.competition.timestamp import Timestamp

LATE = "late"
MAX_PHASES = 10


class Phase(Section):
    """A time between the opening and the close. It ends where the next one begins, the last one at the close."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$", max_length=40)]
    begins_at: Timestamp | None = Field(default=None, description="of the first phase: empty, it begins at the opening")
    counts: bool = Field(
        default=True,
        description="whether its submissions rank and may become finals; else they have a leaderboard of their own",
    )
    submissions_per_day: int | None = Field(default=None, ge=1, description="default: that of limits")
    submissions_total: int | None = Field(default=None, ge=1, description="in this phase; default: that of limits")


class Late(Section):
    """Submissions after the close: unofficial, on a leaderboard of their own, never among the finals."""

    accepted: bool = False
    until: Timestamp | None = Field(default=None, description="empty: until the competition is archived")
    submissions_per_day: int | None = Field(default=None, ge=1, description="default: that of limits")


def require_phases_in_order(phases: Sequence[Phase], late: Late, *, opens_at: datetime, closes_at: datetime) -> None:
    """Raise ValueError unless phases have names of their own and follow one another between opening and close, some
    submissions count, and late ones end after the close."""
    names = [phase.name for phase in phases]
    if wrong := [name for name in names if names.count(name) > 1 or name == LATE]:
        raise ValueError(f"phases: the name {wrong[0]!r} is taken twice, or by submissions after the close")
    if phases and not any(phase.counts for phase in phases):
        raise ValueError("phases: in none of them submissions count, so nobody could be ranked")
    if phases and phases[0].begins_at not in (None, opens_at):
        raise ValueError(f"phases: {names[0]!r} is the first and begins at opens_at ({_iso(opens_at)})")
    before = opens_at
    for phase in phases[1:]:
        if phase.begins_at is None or not before < phase.begins_at < closes_at:
            raise ValueError(
                f"phases: {phase.name!r} must begin after the phase before it ({_iso(before)}) and before "
                f"closes_at ({_iso(closes_at)})"
            )
        before = phase.begins_at
    if late.until is not None and late.until <= closes_at:
        raise ValueError(f"late.until ({_iso(late.until)}) must be later than closes_at ({_iso(closes_at)})")


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
