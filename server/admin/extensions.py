"""Letting one team submit longer than others. Its submissions count, and the finals wait for it."""

from datetime import datetime

from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, Violation
from server.admin.competition_edits import may_change
from server.audit import log as audit
from server.competitions import repository as competition_repository
from server.datetime_format import in_words
from server.db import now
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, Team
from server.notifications import dispatch
from server.teams import repository as team_repository


def extend_team(
    session: Session, competition: Competition, team: Team, *, until: datetime | None, actor: Account, reason: str
) -> Team:
    """Set until when a team may submit; None takes an extension back, whose submissions stay. The team is written to.

    Raises Conflict once the finals are frozen, and InvalidInput for an end that lies in the past or before the close.
    """
    competition = competition_repository.locked(session, competition.id)
    if not may_change(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; a team's end can no longer be changed")
    if until is not None and until <= max(competition.closes_at, now()):
        allowed = "must lie in the future, after the close"
        raise InvalidInput(f"The end {allowed}", violations=(Violation("until", allowed, until.isoformat()),))
    team = team_repository.locked(session, team.id)
    before, team.extended_until = team.extended_until, until
    data = {name: moment.isoformat() if moment else None for name, moment in (("from", before), ("to", until))}
    audit.record(session, actor, "team.extended", competition=competition, subject=team.id, reason=reason, data=data)
    said = f"may submit until {in_words(until)}" if until else "has the same end as every other team again"
    dispatch.write_to_team(
        session,
        competition,
        team.id,
        subject="your team's end",
        text=f"Your team {team.name} {said}.\n\nReason: {reason}",
        path=f"/competitions/{competition.slug}/submit",
    )
    return team
