"""The administrators' list of accounts: who they are, what they run and where they take part."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.models.account import Account
from server.models.competition import CompetitionOrganiser, Membership

PAGE_SIZE = 100


@dataclass(frozen=True)
class ListedAccount:
    """An account, how many competitions it organises and of how many teams it is a member."""

    account: Account
    organises: int
    teams: int


def find_accounts(
    session: Session, *, query: str = "", role: str = "", only_banned: bool = False, page: int = 1
) -> tuple[list[ListedAccount], bool]:
    """Return a page (from 1) of accounts by name, and whether there is another. query: part of name or address."""
    statement = select(Account).order_by(Account.name_key)
    if wanted := query.strip().casefold():
        in_name = Account.name_key.contains(wanted, autoescape=True)
        statement = statement.where(or_(in_name, Account.email.contains(wanted, autoescape=True)))
    if role:
        statement = statement.where(Account.role == role)
    if only_banned:
        statement = statement.where(Account.disabled_at.is_not(None))
    accounts = session.scalars(statement.offset((page - 1) * PAGE_SIZE).limit(PAGE_SIZE + 1)).all()
    ids = [account.id for account in accounts]
    organises = _counted(session, CompetitionOrganiser.account_id, ids)
    teams = _counted(session, Membership.account_id, ids)
    listed = [ListedAccount(account, organises.get(account.id, 0), teams.get(account.id, 0)) for account in accounts]
    return listed[:PAGE_SIZE], len(listed) > PAGE_SIZE


def _counted(session: Session, column: InstrumentedAttribute[str], ids: Sequence[str]) -> dict[str, int]:
    """Return how many rows name each account. One pass over the table: neither has an index by account."""
    return dict(session.execute(select(column, func.count()).where(column.in_(ids)).group_by(column)).all())
