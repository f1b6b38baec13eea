"""Queries about teams and who is in them."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session, joinedload

from lethe.errors import NotFound
from server.accounts.look_alikes import get_shape, look_alike_key, shape_of
from server.models.account import Account
from server.models.competition import Competition, Membership, Team
from server.models.evaluation import Shard, ShardState
from server.models.participation import Invitation, MergeRequest
from server.models.submission import Submission


def get_team(session: Session, competition: Competition, account: Account) -> Team | None:
    """Return the team that `account` is in, or None."""
    mine = Membership.competition_id == competition.root_id, Membership.account_id == account.id
    return session.scalar(select(Team).join(Membership, Membership.team_id == Team.id).where(*mine))


def locked(session: Session, team_id: str) -> Team:
    """Return the team, its row locked until the transaction ends. Raises NotFound if its last member has left."""
    team = session.get(Team, team_id, with_for_update=True, populate_existing=True)
    if team is None:
        raise NotFound("There is no such team any more")
    return team


def teams_like(session: Session, *, competition_id: str, name_keys: Collection[str]) -> Sequence[str]:
    """Return the ids of the competition's teams whose names look like one with these keys."""
    same = shape_of(Team.name_key).in_([get_shape(key) for key in name_keys])
    return session.scalars(select(Team.id).where(Team.competition_id == competition_id, same)).all()


def accounts_like(session: Session, *, name_keys: Collection[str]) -> Sequence[str]:
    """Return the ids of the accounts whose names look like one with these keys."""
    same = shape_of(Account.name_key).in_([get_shape(key) for key in name_keys])
    return session.scalars(select(Account.id).where(same)).all()


def memberships(session: Session, team_id: str) -> Sequence[Membership]:
    """Return the memberships of a team with their accounts, the earliest first."""
    statement = select(Membership).options(joinedload(Membership.account)).where(Membership.team_id == team_id)
    return session.scalars(statement.order_by(Membership.joined_at, Membership.account_id)).all()


def remove_member(session: Session, *, team_id: str, account_id: str) -> None:
    theirs = Membership.team_id == team_id, Membership.account_id == account_id
    session.execute(delete(Membership).where(*theirs))


def size(session: Session, team_id: str) -> int:
    return session.scalar(select(func.count()).where(Membership.team_id == team_id)) or 0


def teams(session: Session, competition: Competition) -> Sequence[Team]:
    """Return every team of a competition, in the order in which they were made."""
    statement = select(Team).where(Team.competition_id == competition.root_id, Team.merged_into_id.is_(None))
    return session.scalars(statement.order_by(Team.created_at, Team.id)).all()


def search(
    session: Session, competition_id: str, *, query: str, offset: int, limit: int
) -> Sequence[tuple[Team, str, int]]:
    """Return some teams with leader and size, by name, the one called `query` first."""
    members = select(func.count()).where(Membership.team_id == Team.id).correlate(Team).scalar_subquery()
    statement = (
        select(Team, Account.name, members)
        .join(Account, Account.id == Team.leader_id)
        .where(Team.competition_id == competition_id, Team.name_key.contains(look_alike_key(query), autoescape=True))
        .order_by(Team.name_key != look_alike_key(query), Team.name_key, Team.id)
        .offset(offset)
        .limit(limit)
    )
    return session.execute(statement).all()


def names(session: Session, team_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of teams by id; an unknown id has no entry."""
    return dict(session.execute(select(Team.id, Team.name).where(Team.id.in_(team_ids))).all())


def has_submissions(session: Session, team_id: str) -> bool:
    return session.scalar(select(Submission.id).where(Submission.team_id == team_id).limit(1)) is not None


def count_counted(
    session: Session, team_id: str, *, phase: str, since: datetime | None = None, before: datetime | None = None
) -> int:
    """Return how many received in [since, before) count in a phase; one for several tasks is one."""
    mine = Submission.team_id == team_id, Submission.phase == phase, Submission.parent_id.is_(None)
    counted = select(func.count()).where(*mine, Submission.refunded.is_(False))
    if since is not None:
        counted = counted.where(Submission.received_at >= since)
    if before is not None:
        counted = counted.where(Submission.received_at < before)
    return session.scalar(counted) or 0


def invitation_by_hash(session: Session, token_hash: str) -> Invitation | None:
    return session.scalar(select(Invitation).where(Invitation.token_hash == token_hash))


def open_invitations(session: Session, team_id: str, at: datetime) -> Sequence[Invitation]:
    """Return a team's invitations that can still be accepted, the newest first."""
    mine = select(Invitation).options(joinedload(Invitation.account)).where(Invitation.team_id == team_id)
    still = mine.where(Invitation.ended_at.is_(None), Invitation.expires_at > at)
    return session.scalars(still.order_by(Invitation.created_at.desc(), Invitation.id)).all()


def invitations_to(session: Session, *, competition_id: str, account_id: str, at: datetime) -> Sequence[Invitation]:
    """Return the invitations by name that this person can still accept in a competition."""
    statement = (
        select(Invitation)
        .options(joinedload(Invitation.team))
        .join(Team, Team.id == Invitation.team_id)
        .where(Invitation.account_id == account_id, Team.competition_id == competition_id)
        .where(Invitation.ended_at.is_(None), Invitation.expires_at > at)
    )
    return session.scalars(statement.order_by(Invitation.created_at, Invitation.id)).all()


def merge_requests(session: Session, team: Team) -> Sequence[MergeRequest]:
    """Return the requests from and to a team."""
    both = select(MergeRequest).options(joinedload(MergeRequest.team), joinedload(MergeRequest.into))
    mine = both.where(or_(MergeRequest.team_id == team.id, MergeRequest.into_id == team.id))
    return session.scalars(mine.order_by(MergeRequest.created_at, MergeRequest.id)).all()


def team_called(session: Session, *, competition_id: str, name_keys: Collection[str]) -> Team | None:
    same = select(Team).where(Team.competition_id == competition_id, Team.name_key.in_(name_keys))
    return session.scalar(same.limit(1))


def end_growth(session: Session, team_id: str, at: datetime) -> None:
    """Close the open invitations and merge requests of a deleted team."""
    session.execute(
        update(Invitation).where(Invitation.team_id == team_id, Invitation.ended_at.is_(None)).values(ended_at=at)
    )
    session.execute(delete(MergeRequest).where(or_(MergeRequest.team_id == team_id, MergeRequest.into_id == team_id)))


def move_everything(session: Session, *, team_id: str, into_id: str) -> None:
    """Give one team's people, submissions and queued work to another."""
    session.execute(update(Membership).where(Membership.team_id == team_id).values(team_id=into_id))
    session.execute(update(Submission).where(Submission.team_id == team_id).values(team_id=into_id))
    session.execute(
        update(Shard)
        .where(Shard.team_id == team_id, Shard.state.in_([ShardState.QUEUED.value, ShardState.LEASED.value]))
        .values(team_id=into_id)
    )
    session.execute(update(Submission).where(Submission.team_id == into_id).values(selected=False))


def competitions_of(session: Session, account: Account) -> frozenset[str]:
    """Return the ids of the competitions in which the account is in a team."""
    return frozenset(session.scalars(select(Membership.competition_id).where(Membership.account_id == account.id)))
