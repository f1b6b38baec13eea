"""How many submissions a team has left. Days are UTC days; what was refunded does not count."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from server.competitions.phases import Period
from server.datetime_format import in_words
from server.db import DAY, start_of_day
from server.errors import QuotaExceeded
from server.evaluations.results import FREE_SAMPLE_FAILURES, free_failures_left
from server.models.competition import Team
from server.teams import team_repository


@dataclass(frozen=True)
class Quota:
    """A team's quota at one moment. used_total: counted only where there is a total.

    free_failures_left: what the team sends today may fail so often on the public sample without counting.
    """

    per_day: int
    used_today: int
    total: int | None
    used_total: int
    resets_at: datetime
    phase: str = ""
    free_failures_left: int = FREE_SAMPLE_FAILURES

    @property
    def remaining_today(self) -> int:
        return max(0, self.per_day - self.used_today)

    @property
    def remaining_total(self) -> int | None:
        return None if self.total is None else max(0, self.total - self.used_total)

    @property
    def remaining(self) -> int:
        """Submissions that would be taken now."""
        left = self.remaining_total
        return self.remaining_today if left is None else min(self.remaining_today, left)

    def headers(self) -> dict[str, str]:
        return {
            "X-Quota-Limit": str(self.per_day),
            "X-Quota-Remaining": str(self.remaining),
            "X-Quota-Reset": self.resets_at.isoformat(timespec="seconds"),
        }


def of(session: Session, team: Team | None, *, period: Period, at: datetime) -> Quota:
    """Return the quota of `team`, or of one that has submitted nothing yet. Each phase is counted by itself."""
    midnight, phase = start_of_day(at), period.name
    today = {"since": midnight, "before": midnight + DAY}
    return Quota(
        per_day=period.per_day,
        used_today=team_repository.count_counted(session, team.id, phase=phase, **today) if team else 0,
        total=period.total,
        used_total=team_repository.count_counted(session, team.id, phase=phase)
        if team and period.total is not None
        else 0,
        resets_at=midnight + DAY,
        phase=phase,
        free_failures_left=free_failures_left(session, team.id, day=midnight) if team else FREE_SAMPLE_FAILURES,
    )


def check(quota: Quota, *, at: datetime) -> None:
    """Raise QuotaExceeded, saying what is left and when more is, if nothing is."""
    if quota.total is not None and quota.used_total >= quota.total:
        where = f"the phase {quota.phase}" if quota.phase else "this competition"
        raise QuotaExceeded(f"All {quota.total} submissions of {where} are used", headers=quota.headers())
    if quota.used_today >= quota.per_day:
        raise QuotaExceeded(
            f"All {quota.per_day} submissions of today are used; the next day begins on {in_words(quota.resets_at)}",
            headers=quota.headers(),
            retry_after_s=int((quota.resets_at - at).total_seconds()) + 1,
        )
