"""How many submissions a team has left. Days are UTC days; what was refunded does not count."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from server.competitions.lifecycle import Period
from server.datetime_format import in_words
from server.db import DAY, start_of_day
from server.errors import QuotaExceeded
from server.evaluations.results import FREE_SAMPLE_FAILURES, free_failures_left
from server.models.competition import Team
from server.teams import team_repository


@dataclass(frozen=True)
class Quota:
    """What a team has left at one moment."""

    per_day: Annotated[int, Field(examples=[5])]
    total: int | None
    used_today: Annotated[int, Field(examples=[2])]
    remaining: Annotated[int, Field(description="submissions that would be taken now", examples=[3])]
    remaining_today: Annotated[int, Field(examples=[3])]
    remaining_total: Annotated[int | None, Field(description="null: no limit", examples=[None])]
    resets_at: Annotated[datetime, Field(description="when the next UTC day begins")]
    phase: Annotated[str, Field(description="which is counted by itself; late: after the close", examples=["final"])]
    free_failures_left: Annotated[
        int,
        Field(
            description="of what is sent today, so many may fail on the public sample without counting", examples=[20]
        ),
    ]

    def headers(self) -> dict[str, str]:
        return {
            "X-Quota-Limit": str(self.per_day),
            "X-Quota-Remaining": str(self.remaining),
            "X-Quota-Reset": self.resets_at.isoformat(timespec="seconds"),
        }


def of(session: Session, team: Team | None, *, period: Period, at: datetime) -> Quota:
    """Return the quota of `team`, or of one that has submitted nothing yet. Each phase is counted separately."""
    midnight, phase = start_of_day(at), period.name
    today = {"since": midnight, "before": midnight + DAY}
    used_today = team_repository.count_counted(session, team.id, phase=phase, **today) if team else 0
    left = left_today = max(0, period.per_day - used_today)
    left_of_all = period.total
    if left_of_all is not None:
        used = team_repository.count_counted(session, team.id, phase=phase) if team else 0
        left_of_all = max(0, left_of_all - used)
        left = min(left_today, left_of_all)
    return Quota(
        per_day=period.per_day,
        total=period.total,
        used_today=used_today,
        remaining=left,
        remaining_today=left_today,
        remaining_total=left_of_all,
        resets_at=midnight + DAY,
        phase=phase,
        free_failures_left=free_failures_left(session, team.id, day=midnight) if team else FREE_SAMPLE_FAILURES,
    )


def check(quota: Quota, *, at: datetime) -> None:
    """Raise QuotaExceeded, saying what is left and when more is, if nothing is."""
    if quota.remaining_total == 0:
        where = f"the phase {quota.phase}" if quota.phase else "this competition"
        raise QuotaExceeded(f"All {quota.total} submissions of {where} are used", headers=quota.headers())
    if quota.used_today >= quota.per_day:
        raise QuotaExceeded(
            f"All {quota.per_day} submissions of today are used; the next day begins on {in_words(quota.resets_at)}",
            headers=quota.headers(),
            retry_after_s=int((quota.resets_at - at).total_seconds()) + 1,
        )
