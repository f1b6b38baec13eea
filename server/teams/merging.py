"""Two teams become one: asked by one leader, agreed to by the other, if size and quota allow."""

from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server.audit import log as audit
from server.competitions import participation, phases
from server.competitions.phases import Period
from server.competitions.stored_file import stored_file
from server.db import DAY, now, start_of_day
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, Team
from server.models.invitation import MergeRequest
from server.teams import repository
from server.teams.joining import check_leader, check_may_grow
from server.teams.service import key_pair, own_team

requests = repository.merge_requests


def ask(session: Session, competition: Competition, *, into: str, actor: Account) -> MergeRequest:
    """Ask that one's team becomes part of the team called `into`. For the leader."""
    team = own_team(session, competition, actor)
    check_leader(team, actor)
    participation.check_may_take_part(session, competition, actor)
    check_may_grow(competition, at=now())
    other = repository.team_called(session, competition_id=competition.id, name_keys=key_pair(into))
    if other is None or other.merged_into_id is not None:
        raise NotFound(f"There is no team called {into!r}")
    if other.id == team.id:
        raise Conflict("A team cannot merge into itself")
    check_fits(session, competition, (team, other), at=now())
    request = MergeRequest(team_id=team.id, into_id=other.id)
    try:
        with session.begin_nested():
            session.add(request)
    except IntegrityError as error:
        raise Conflict(f"Your team has asked {other.name!r} already") from error
    data = {"into": other.id, "request": request.id}
    audit.record(session, actor, "team.merge_asked", competition=competition, subject=team.id, data=data)
    return request


def agree(session: Session, competition: Competition, request_id: str, *, actor: Account) -> Team:
    """Carry out a merge that another team asked for. For the leader of the team that stays.

    Its people, submissions and queued work become this team's; what either chose for its finals is chosen again.
    """
    request = _request(session, request_id)
    for team_id in sorted((request.team_id, request.into_id)):  # in one order, so that two merges cannot block
        repository.locked(session, team_id)
    team, into = _team(session, request.team_id), _team(session, request.into_id)
    is_gone = team.merged_into_id or into.merged_into_id  # by a merge that had the locks before
    if is_gone or into.competition_id != competition.id:
        raise NotFound(UNKNOWN)
    check_leader(into, actor)
    participation.check_may_take_part(session, competition, actor)
    check_may_grow(competition, at=now())
    check_fits(session, competition, (team, into), at=now())
    repository.move_everything(session, team_id=team.id, into_id=into.id)
    team.merged_into_id = into.id
    repository.end_growth(session, team.id, now())
    data = {"merged": team.id, "name": team.name}
    audit.record(session, actor, "team.merged", competition=competition, subject=into.id, data=data)
    session.flush()
    return into


def refuse(session: Session, competition: Competition, request_id: str, *, actor: Account) -> None:
    """Turn a request down, or take one's own back."""
    request = _request(session, request_id)
    mine = own_team(session, competition, actor)
    if mine.id not in (request.team_id, request.into_id):
        raise NotFound(UNKNOWN)
    check_leader(mine, actor)
    session.delete(request)


UNKNOWN = "No such merge request"


def check_fits(session: Session, competition: Competition, teams: tuple[Team, Team], *, at: datetime) -> None:
    """Raise Conflict unless the two together are small enough, and have sent no more than one team could have."""
    limits = stored_file(competition).limits
    if any(team.disqualified_at is not None for team in teams):
        raise Conflict("A disqualified team cannot merge")
    people = sum(repository.size(session, team.id) for team in teams)
    if people > limits.team_size:
        raise Conflict(f"Together the teams have {people} people; at most {limits.team_size} are allowed")
    for period, begin, end in phases.allowed_until(competition, at):
        sent = sum(repository.count_counted(session, team.id, phase=period.name) for team in teams)
        allowed = _allowed(period, begin, end)
        if sent > allowed:
            where = f" in the phase {period.name}" if period.name else ""
            raise Conflict(
                f"Together the teams have sent {sent} submissions{where}; one team could have sent {allowed} by now"
            )


def _allowed(period: Period, begin: datetime, end: datetime) -> int:
    days = (start_of_day(end) - start_of_day(begin)) // DAY + 1
    by_day = max(0, days) * period.per_day
    return by_day if period.total is None else min(by_day, period.total)


def _request(session: Session, request_id: str) -> MergeRequest:
    request = session.get(MergeRequest, request_id)
    if request is None:
        raise NotFound(UNKNOWN)
    return request


def _team(session: Session, team_id: str) -> Team:
    team = session.get(Team, team_id)
    if team is None:
        raise NotFound("There is no such team")
    return team
