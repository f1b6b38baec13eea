"""Queries of the page of people: accounts with what they run and where they take part."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.models.account import Account
from server.models.competition import CompetitionOrganiser, Membership

LINES = 100


@dataclass(frozen=True)
class Person:
    account: Account
    organises: int
    teams: int


def people(session: Session, *, query: str, role: str, only: str, page: int) -> list[Person]:
    """Return one page of accounts by name, and one more if there is another page.

    query: part of a name or of an e-mail address. only: banned, or empty for all.
    """
    statement = select(Account).order_by(Account.name_key)
    if query:
        wanted = query.casefold()
        in_name = Account.name_key.contains(wanted, autoescape=True)
        statement = statement.where(or_(in_name, Account.email.contains(wanted, autoescape=True)))
    if role:
        statement = statement.where(Account.role == role)
    if only == "banned":
        statement = statement.where(Account.disabled_at.is_not(None))
    found = session.scalars(statement.offset((page - 1) * LINES).limit(LINES + 1)).all()
    ids = [account.id for account in found]
    organises = _counted(session, CompetitionOrganiser.account_id, ids)
    teams = _counted(session, Membership.account_id, ids)
    return [Person(account, organises.get(account.id, 0), teams.get(account.id, 0)) for account in found]


def _counted(session: Session, column: InstrumentedAttribute[str], ids: Sequence[str]) -> dict[str, int]:
    """Return how many rows name each account. One pass over the table: neither has an index by account."""
    return dict(session.execute(select(column, func.count()).where(column.in_(ids)).group_by(column)).all())
