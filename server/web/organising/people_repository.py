"""Queries of the page of people: accounts with what they run and where they take part."""

from dataclasses import dataclass

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

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
    organises = (
        select(func.count()).where(CompetitionOrganiser.account_id == Account.id).correlate(Account).scalar_subquery()
    )
    teams = select(func.count()).where(Membership.account_id == Account.id).correlate(Account).scalar_subquery()
    statement = select(Account, organises, teams).order_by(Account.name_key)
    if query:
        wanted = query.casefold()
        in_name = Account.name_key.contains(wanted, autoescape=True)
        statement = statement.where(or_(in_name, Account.email.contains(wanted, autoescape=True)))
    if role:
        statement = statement.where(Account.role == role)
    if only == "banned":
        statement = statement.where(Account.disabled_at.is_not(None))
    rows = session.execute(statement.offset((page - 1) * LINES).limit(LINES + 1))
    return [Person(*row) for row in rows]
