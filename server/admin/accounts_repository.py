"""Queries of the administrators' list of accounts: who they are, what they run and where they take part."""

from collections.abc import Sequence

from sqlalchemy import func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.admin.listed_account import ListedAccount
from server.models.account import Account
from server.models.competition import CompetitionOrganiser, Membership


def accounts(
    session: Session, *, query: str, role: str, only_banned: bool, offset: int, limit: int
) -> list[ListedAccount]:
    """Return some accounts by name. query: part of a name or of an e-mail address; role: empty for any."""
    statement = select(Account).order_by(Account.name_key)
    if query:
        wanted = query.casefold()
        in_name = Account.name_key.contains(wanted, autoescape=True)
        statement = statement.where(or_(in_name, Account.email.contains(wanted, autoescape=True)))
    if role:
        statement = statement.where(Account.role == role)
    if only_banned:
        statement = statement.where(Account.disabled_at.is_not(None))
    found = session.scalars(statement.offset(offset).limit(limit)).all()
    ids = [account.id for account in found]
    organises = _counted(session, CompetitionOrganiser.account_id, ids)
    teams = _counted(session, Membership.account_id, ids)
    return [ListedAccount(account, organises.get(account.id, 0), teams.get(account.id, 0)) for account in found]


def _counted(session: Session, column: InstrumentedAttribute[str], ids: Sequence[str]) -> dict[str, int]:
    """Return how many rows name each account. One pass over the table: neither has an index by account."""
    return dict(session.execute(select(column, func.count()).where(column.in_(ids)).group_by(column)).all())
