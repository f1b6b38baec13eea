"""Links that set a password: asked for by mail, made by an administrator, and of the first administrator."""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server import audit
from server.accounts import account_repository, accounts, rate_limit
from server.accounts.accounts import check_password, name_key
from server.accounts.passwords import digest, hash_password, new_token
from server.db import now
from server.errors import Conflict, RateLimited
from server.models.account import Account, Role
from server.notifications import outbox

BY_MAIL = timedelta(hours=1)
BY_ADMINISTRATOR = timedelta(hours=24)
UNUSABLE = "The link does not work: it was used, has expired, or was replaced by a newer one"
LETTER = """\
Hello {name},

somebody asked for a new password of your account. If that was you, set it here, within {minutes} minutes:

{link}

If it was not you, nothing has changed and there is nothing to do.
"""


@dataclass(frozen=True)
class IssuedReset:
    """A link's token at the only time when it can be read."""

    account: Account
    token: str
    expires_at: datetime

    @property
    def link(self) -> str:
        """The address of the page that takes the new password: at the instance's own name, whatever a request said."""
        return outbox.page_url(f"/reset?token={self.token}")


def issue(session: Session, account: Account, *, actor: Account | None, lifetime: timedelta) -> IssuedReset:
    """Make a link for `account`; earlier ones end. actor: None for its owner. Raises Conflict if it is banned."""
    if account.disabled_at is not None:
        raise Conflict(f"{account.name} is {'deleted' if account.deleted_at else 'banned'} and cannot log in")
    at = now()
    account_repository.end_resets(session, account.id, at)
    token = new_token()
    account_repository.add_reset(session, account.id, token_hash=digest(token), expires_at=at + lifetime)
    audit.record(session, actor, "account.reset_issued", subject=account.id)
    return IssuedReset(account, token, at + lifetime)


def send_link(session: Session, who: str) -> None:
    """Mail a link to the account of this name or confirmed address. The answer is the same if there is none."""
    who = who.strip()
    account = account_repository.account_by_name_key(session, name_key(who))
    account = account or account_repository.account_by_confirmed_email(session, who.lower())
    if account is None or account.email is None or account.email_confirmed_at is None or account.disabled_at:
        return
    try:
        rate_limit.reset_links.take(account.id)
    except RateLimited:
        return
    issued = issue(session, account, actor=None, lifetime=BY_MAIL)
    body = LETTER.format(name=account.name, link=issued.link, minutes=round(BY_MAIL.total_seconds() / 60))
    outbox.queue_mail(session, to=account.email, subject="A new password", body=body)


def get_account(session: Session, token: str) -> Account:
    """Return whose password a link sets. Raises NotFound if it does not work."""
    row = account_repository.open_reset(session, digest(token), now())
    if row is None or row.account.disabled_at is not None:
        raise NotFound(UNUSABLE)
    return row.account


def use(session: Session, token: str, *, password: str) -> Account:
    """Set the password; every browser session and token ends. Raises NotFound or InvalidInput."""
    check_password(password)
    password_hash = hash_password(password)  # slow: before the transaction that others may wait for begins
    at = now()
    row = account_repository.open_reset(session, digest(token), at)
    if row is None or row.account.disabled_at is not None or not account_repository.end_reset(session, row.id, at):
        raise NotFound(UNUSABLE)
    account = row.account
    account.password_hash = password_hash
    account_repository.revoke_web_sessions(session, account.id, at)
    account_repository.revoke_tokens(session, account.id, at)
    audit.record(session, account, "account.password_reset", subject=account.id)
    return account


@dataclass(frozen=True)
class Made:
    """Who is an administrator now, and the link that sets the password where the account is new and has none."""

    name: str
    existed: bool
    link: str = ""


def create(session: Session, *, name: str, email: str | None = None, password: str | None = None) -> Made:
    """Make an administrator, or one of an account that keeps its password. Raises InvalidInput or Conflict."""
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
    issued = issue(session, account, actor=None, lifetime=BY_ADMINISTRATOR)
    return Made(account.name, existed=False, link=issued.link)
