"""How people come to a team and leave it: invitations by link or by name, leaving, handing the lead on.

A person who has submitted is bound to that team: otherwise one could leave with a fresh quota. Teams with submissions
come together by merging.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server import audit
from server.accounts import accounts
from server.accounts.passwords import digest, new_token
from server.competitions import competitions, lifecycle, participation
from server.competitions.lifecycle import Period
from server.competitions.stored_file import stored_file
from server.datetime_format import in_words
from server.db import DAY, now, start_of_day
from server.errors import Conflict, NotAllowed
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Membership, Team
from server.models.participation import Invitation, MergeRequest
from server.teams import team_repository, teams
from server.teams.teams import key_pair, own_team

LIFETIME = timedelta(days=7)
MAX_OPEN = 20
GROWING = (CompetitionState.READY, CompetitionState.OPEN)
UNUSABLE = "The invitation is unknown, used, revoked or expired"
requests = team_repository.merge_requests


@dataclass(frozen=True)
class IssuedInvitation:
    """An invitation at the only time when its link can be read. By name there is no link."""

    row: Invitation
    token: str | None


def invite(session: Session, team: Team, *, actor: Account, name: str | None = None) -> IssuedInvitation:
    """Invite the person called `name`, or whoever holds the link that is returned. For the leader."""
    team = team_repository.locked(session, team.id)  # counted by one after the other
    check_leader(team, actor)
    competition = competitions.of_id(session, team.competition_id)
    participation.check_may_take_part(session, competition, actor)
    check_may_grow(competition, at=now())
    if len(team_repository.open_invitations(session, team.id, now())) >= MAX_OPEN:
        raise Conflict(f"The team has {MAX_OPEN} open invitations; revoke one first")
    person = accounts.find(session, name) if name else None
    if person is not None and session.get(Membership, (team.id, person.id)) is not None:
        raise Conflict(f"{person.name} is in the team already")
    token = None if person else new_token()
    row = Invitation(
        team_id=team.id,
        account_id=person.id if person else None,
        token_hash=digest(token) if token else None,
        created_by=actor.id,
        expires_at=now() + LIFETIME,
    )
    session.add(row)
    session.flush()
    data = {"invitation": row.id, "account": person.name if person else None}
    audit.record(session, actor, "team.invited", competition=competition, subject=team.id, data=data)
    return IssuedInvitation(row, token)


def open_invitations(session: Session, team: Team, *, actor: Account) -> Sequence[Invitation]:
    """Return the team's invitations that can still be accepted. For the leader."""
    check_leader(team, actor)
    return team_repository.open_invitations(session, team.id, now())


def invitations_to(session: Session, competition: Competition, account: Account) -> Sequence[Invitation]:
    """Return the invitations by name that `account` can accept."""
    return team_repository.invitations_to(session, competition_id=competition.id, account_id=account.id, at=now())


def revoke(session: Session, team: Team, invitation_id: str, *, actor: Account) -> None:
    """End an invitation of one's team. For the leader. Raises NotFound."""
    check_leader(team, actor)
    row = session.get(Invitation, invitation_id)
    if row is None or row.team_id != team.id or not _is_open(row, now()):
        raise NotFound(UNUSABLE)
    row.ended_at = now()


def accept_link(session: Session, competition: Competition, token: str, *, account: Account) -> Team:
    """Join the team that a link invites to. A link brings in one person."""
    row = team_repository.invitation_by_hash(session, digest(token))
    if row is None:
        raise NotFound(UNUSABLE)
    return _join(session, competition, row, account=account)


def accept(session: Session, competition: Competition, invitation_id: str, *, account: Account) -> Team:
    """Join the team that invited one by name."""
    return _join(session, competition, _to_me(session, invitation_id, account), account=account)


def decline(session: Session, competition: Competition, invitation_id: str, *, account: Account) -> None:
    """Turn an invitation by name down."""
    row = _to_me(session, invitation_id, account)
    team = session.get(Team, row.team_id)
    if team is None or team.competition_id != competition.id or not _is_open(row, now()):
        raise NotFound(UNUSABLE)
    row.ended_at = now()


def leave(session: Session, competition: Competition, account: Account) -> None:
    """Leave one's team, which is deleted once it is empty. Raises Conflict once the team has submitted."""
    team = team_repository.locked(session, teams.own_team(session, competition, account).id)
    if not may_leave(session, team):
        raise Conflict("The team has submitted, so its members can no longer leave")
    others = [member for member in teams.members(session, team) if member.id != account.id]
    if others and team.leader_id == account.id:
        team.leader_id = others[0].id
    _remove(session, team, account, is_last=not others)
    audit.record(session, account, "team.left", competition=competition, subject=team.id)


def hand_over(session: Session, team: Team, *, name: str, actor: Account) -> Team:
    """Make another member the leader. For the leader. Raises NotFound for somebody else."""
    team = team_repository.locked(session, team.id)
    check_leader(team, actor)
    person = next(
        (m for m in teams.members(session, team) if accounts.name_key(m.name) == accounts.name_key(name)), None
    )
    if person is None:
        raise NotFound(f"{name!r} is not in the team")
    team.leader_id = person.id
    data = {"leader": person.name}
    audit.record(session, actor, "team.handed_over", competition=team.competition_id, subject=team.id, data=data)
    return team


def check_leader(team: Team, actor: Account) -> None:
    """Raise NotAllowed for anyone but the leader."""
    if team.leader_id != actor.id:
        raise NotAllowed("Only the team's leader may do this")


def check_may_grow(competition: Competition, *, at: datetime) -> None:
    """Raise Conflict once teams of the competition stay as they are."""
    if not may_grow(competition, at=at):
        raise Conflict(f"Teams of {competition.slug} could change until {in_words(_last_change(competition))}")


def may_grow(competition: Competition, *, at: datetime) -> bool:
    """Return whether teams of the competition may still take people in and merge."""
    return competition.state in GROWING and at < _last_change(competition)


def may_leave(session: Session, team: Team) -> bool:
    """Return whether people may leave the team: until it has submitted."""
    return not team_repository.has_submissions(session, team.id)


def _last_change(competition: Competition) -> datetime:
    """Return the end of changes: the file's, or the competition's where that came first."""
    return min(stored_file(competition).merge_deadline or competition.closes_at, competition.closes_at)


def _join(session: Session, competition: Competition, row: Invitation, *, account: Account) -> Team:
    participation.check_may_take_part(session, competition, account)
    check_may_grow(competition, at=now())
    team = team_repository.locked(session, row.team_id)
    session.refresh(row)
    if not _is_open(row, now()) or team.competition_id != competition.id or team.merged_into_id is not None:
        raise NotFound(UNUSABLE)
    if team.disqualified_at is not None:
        raise Conflict(f"The team {team.name!r} was disqualified")
    limit = stored_file(competition).limits.team_size
    if team_repository.size(session, team.id) >= limit:
        raise Conflict(f"The team is full: it has {limit} people")
    _give_up_present_team(session, competition, account, joining=team)
    teams.add_member(session, competition, team, account)
    row.ended_at = now()
    session.flush()
    audit.record(session, account, "team.joined", competition=competition, subject=team.id)
    return team


def _give_up_present_team(session: Session, competition: Competition, account: Account, *, joining: Team) -> None:
    present = teams.get_team(session, competition, account)
    if present is None:
        return
    if present.id == joining.id:
        raise Conflict("You are in this team already")
    if team_repository.size(session, present.id) > 1:
        raise Conflict(f"You are in the team {present.name!r}; leave it first")
    if team_repository.has_submissions(session, present.id):
        raise Conflict("You have submitted alone; your team has to merge into the other")
    _remove(session, present, account, is_last=True)


def _remove(session: Session, team: Team, account: Account, *, is_last: bool) -> None:
    membership = session.get(Membership, (team.id, account.id))
    if membership is not None:
        session.delete(membership)
        session.flush()
    if is_last:
        session.delete(team)
        session.flush()


def _to_me(session: Session, invitation_id: str, account: Account) -> Invitation:
    row = session.get(Invitation, invitation_id)
    if row is None or row.account_id != account.id:
        raise NotFound(UNUSABLE)
    return row


def _is_open(row: Invitation, at: datetime) -> bool:
    return row.ended_at is None and row.expires_at > at


def ask(session: Session, competition: Competition, *, into: str, actor: Account) -> MergeRequest:
    """Ask that one's team becomes part of the team called `into`. For the leader."""
    team = own_team(session, competition, actor)
    check_leader(team, actor)
    participation.check_may_take_part(session, competition, actor)
    check_may_grow(competition, at=now())
    other = team_repository.team_called(session, competition_id=competition.id, name_keys=key_pair(into))
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
    """Merge the team that asked, with people, submissions and queued work, into this one. For its leader."""
    request = _request(session, request_id)
    for team_id in sorted((request.team_id, request.into_id)):  # in one order, so that two merges cannot block
        team_repository.locked(session, team_id)
    team, into = _team(session, request.team_id), _team(session, request.into_id)
    is_gone = team.merged_into_id or into.merged_into_id  # by a merge that had the locks before
    if is_gone or into.competition_id != competition.id:
        raise NotFound(UNKNOWN)
    check_leader(into, actor)
    participation.check_may_take_part(session, competition, actor)
    check_may_grow(competition, at=now())
    check_fits(session, competition, (team, into), at=now())
    team_repository.move_everything(session, team_id=team.id, into_id=into.id)
    team.merged_into_id = into.id
    team_repository.end_growth(session, team.id, now())
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
    """Raise Conflict if the merged team would be too large, or exceed the quota of one team."""
    limits = stored_file(competition).limits
    if any(team.disqualified_at is not None for team in teams):
        raise Conflict("A disqualified team cannot merge")
    people = sum(team_repository.size(session, team.id) for team in teams)
    if people > limits.team_size:
        raise Conflict(f"Together the teams have {people} people; at most {limits.team_size} are allowed")
    for period, begin, end in lifecycle.allowed_until(competition, at):
        sent = sum(team_repository.count_counted(session, team.id, phase=period.name) for team in teams)
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
