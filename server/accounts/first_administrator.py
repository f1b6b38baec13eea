"""The first administrator of an instance: nobody is there yet who could make one over HTTP."""

import secrets
from dataclasses import dataclass

from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server.accounts import accounts, password_reset
from server.errors import Conflict
from server.models.account import Account, Role


@dataclass(frozen=True)
class Made:
    """Who is an administrator now, and the link that sets the password where the account is new and has none."""

    name: str
    existed: bool
    link: str = ""


def create(session: Session, *, name: str, email: str | None = None, password: str | None = None) -> Made:
    """Make an administrator, or make one of the account that is there, which keeps its password.

    password: of a new account; None for a link that sets it. Raises InvalidInput, or Conflict for an account that is
    banned, or that is there where a password or an address was given.
    """
    try:
        account = accounts.find(session, name)
    except NotFound:
        return _made(session, name=name, email=email, password=password)
    if account.disabled_at is not None:
        raise Conflict(f"{account.name} is {'deleted' if account.deleted_at else 'banned'}; choose another name")
    if password is not None or email is not None:
        raise Conflict(f"{account.name} is there already and keeps its password and address; leave both out")
    if account.role != Role.ADMINISTRATOR:
        accounts.set_role(session, account, Role.ADMINISTRATOR, actor=None, reason="made on the server's machine")
    return Made(account.name, existed=True)


def _made(session: Session, *, name: str, email: str | None, password: str | None) -> Made:
    first = password if password is not None else secrets.token_urlsafe(32)  # known to nobody: the link replaces it
    account: Account = accounts.register(session, name=name, password=first, email=email, role=Role.ADMINISTRATOR)
    if password is not None:
        return Made(account.name, existed=False)
    issued = password_reset.issue(session, account, actor=None, lifetime=password_reset.BY_ADMINISTRATOR)
    return Made(account.name, existed=False, link=issued.link)
