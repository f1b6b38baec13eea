"""SQL of what failures have told."""

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.models.competition import Team
from server.models.leak_budget import Disclosure
from server.models.submission import Submission


def hold_team(session: Session, team_id: str) -> None:
    """Let nobody else count this team's bits until the transaction ends (SQLite: the complete database is held)."""
    # Not FOR UPDATE, which would wait for every transaction that has added a row of this team.
    session.execute(select(Team.id).where(Team.id == team_id).with_for_update(key_share=True))


def bits_told(session: Session, team_id: str, *, since: datetime, before: datetime) -> float:
    """Return the bits that failures have told a team in [since, before), whoever sent the submissions then."""
    told = (
        select(func.coalesce(func.sum(Disclosure.bits), 0.0))
        .join(Submission, Submission.id == Disclosure.submission_id)
        .where(Submission.team_id == team_id, Disclosure.disclosed_at >= since, Disclosure.disclosed_at < before)
    )
    return float(session.scalars(told).one())
