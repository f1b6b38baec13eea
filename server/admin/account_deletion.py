"""Deleting one's own account: what names the person goes, what a ranking rests on stays.

The row itself stays under a name that says nothing, because submissions, teams and the audit log refer to it. So do
the submissions, their code and their scores: a board from which entries vanish cannot be defended.
"""

from sqlalchemy.orm import Session

from server import audit
from server.accounts import account_repository
from server.accounts.accounts import DELETED, name_key
from server.accounts.second_factor import confirm
from server.datasets import datasets
from server.db import new_id, now
from server.errors import Conflict
from server.models.account import Account, Role
from server.models.competition import Team
from server.teams import team_repository

NO_HASH = ""  # which no password has


def delete(session: Session, account: Account, *, password: str, code: str = "") -> None:
    """Delete `account`. Raises InvalidInput for a wrong password, or Conflict for who is still needed."""
    confirm(session, account, password, code=code)
    _check_is_not_needed(session, account)
    for team in account_repository.get_teams(session, account.id):
        _remove_from_team(session, team_repository.locked(session, team.id), account)
    account_repository.forget(session, account)
    datasets.delete_unused(session, before=now(), account=account)
    account.name = account.name_key = f"{DELETED}{account.id}"
    account.email, account.password_hash, account.role = None, NO_HASH, Role.PARTICIPANT.value
    account.email_confirmed_at = account.totp_salt = account.totp_on_at = account.totp_step = None
    account.disabled_at = account.deleted_at = now()
    audit.record(session, account, "account.deleted", subject=account.id)


def _check_is_not_needed(session: Session, account: Account) -> None:
    if account.role == Role.ADMINISTRATOR and not account_repository.other_administrators(session, account.id):
        raise Conflict("You are the only administrator; make somebody else one first")
    alone = account_repository.organised_alone(session, account.id)
    if alone:
        raise Conflict(f"You alone organise {', '.join(alone)}; archive it first, or let somebody else organise it too")


def _remove_from_team(session: Session, team: Team, account: Account) -> None:
    """Leave the team to the others. Who has used its quota stays in it, without a name, as everybody who submitted."""
    members = [membership.account for membership in team_repository.memberships(session, team.id)]
    others = [member for member in members if member.id != account.id and member.deleted_at is None]
    if not others:
        team.name = f"deleted account {new_id()[:8]}"
        team.name_key = name_key(team.name)
        team_repository.end_growth(session, team.id, now())
        return
    if team.leader_id == account.id:
        team.leader_id = others[0].id
    if not team_repository.has_submissions(session, team.id):
        team_repository.remove_member(session, team_id=team.id, account_id=account.id)
