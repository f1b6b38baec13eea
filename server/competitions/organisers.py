"""Who runs a competition, and how that is changed."""

from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, Violation
from server import audit
from server.accounts import accounts
from server.competitions import competition_repository, lifecycle
from server.errors import Conflict
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionOrganiser

of = competition_repository.organisers


def add(session: Session, competition: Competition, name: str, *, actor: Account, reason: str) -> Account:
    """Let another organiser run the competition. Raises NotFound, InvalidInput for a participant, or Conflict."""
    account = accounts.find(session, name)
    if account.role == Role.PARTICIPANT:
        allowed = "is a participant; an administrator makes organisers"
        raise InvalidInput(f"{account.name} {allowed}", violations=(Violation("name", allowed, account.name),))
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if competition_repository.organises(session, competition_id=competition.id, account_id=account.id):
        raise Conflict(f"{account.name} organises {competition.slug} already")
    session.add(CompetitionOrganiser(competition_id=competition.id, account_id=account.id))
    _record(session, competition, "competition.organiser_added", account, actor=actor, reason=reason)
    return account


def remove(session: Session, competition: Competition, name: str, *, actor: Account, reason: str) -> Account:
    """Let somebody no longer run the competition. Raises NotFound, or Conflict for the last one."""
    lifecycle.require_no_task(competition)
    account = accounts.find(session, name)
    competition = competition_repository.locked(session, competition.id)
    if not competition_repository.organises(session, competition_id=competition.id, account_id=account.id):
        raise Conflict(f"{account.name} does not organise {competition.slug}")
    if len(of(session, competition)) == 1:
        raise Conflict(f"{account.name} is the last organiser of {competition.slug}; add another one first")
    competition_repository.remove_organiser(session, competition_id=competition.id, account_id=account.id)
    _record(session, competition, "competition.organiser_removed", account, actor=actor, reason=reason)
    return account


def _record(
    session: Session, competition: Competition, action: str, account: Account, *, actor: Account, reason: str
) -> None:
    data = {"account": account.name}
    audit.record(session, actor, action, competition=competition, subject=account.id, reason=reason, data=data)
