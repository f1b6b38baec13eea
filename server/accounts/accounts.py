"""Accounts: registration, authentication, passwords and confirmed addresses."""

import hashlib
import hmac
import re
import time
from contextlib import suppress
from datetime import timedelta

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, NotFound, Violation
from lethe.text_files import without_invisible
from server import audit
from server.accounts import account_repository, rate_limit
from server.accounts.look_alikes import get_shape, look_alike_key
from server.accounts.passwords import MAX_LENGTH, MIN_LENGTH, hash_password, verify_password
from server.accounts.second_factor import confirm
from server.config import get_settings
from server.db import now
from server.errors import Conflict, NotAuthenticated, RateLimited
from server.models.account import Account, Role
from server.notifications import outbox

CONFIRMATION_LIFETIME = timedelta(days=3)
MAX_TIME_DIGITS = 12  # digits of a time in seconds
UNUSABLE = "The link does not work: it has expired, or the account has another address now"
ADDRESS_TAKEN = "Another account has confirmed this address; remove it there first, or give this account another"
LETTER = """\
Hello {name},

your account names this address. If that was you, confirm it here, within {days} days:

{link}

If it was not you, there is nothing to do: without this, no more mail comes here.
"""


def send_confirmation(session: Session, account: Account) -> bool:
    """Queue a letter with a link to an address that is not confirmed. Return whether. Raises RateLimited."""
    if account.email is None or account.email_confirmed_at is not None or not outbox.sends_mail():
        return False
    rate_limit.confirmations.take(account.email)
    link = outbox.page_url(f"/confirm?token={make_confirmation_token(account)}")
    body = LETTER.format(name=account.name, link=link, days=CONFIRMATION_LIFETIME.days)
    return outbox.queue_mail(session, to=account.email, subject="Confirm your address", body=body)


def make_confirmation_token(account: Account) -> str:
    """Return the token that confirms the account's present address, for some days."""
    return _sign(account, ends_at=int(time.time() + CONFIRMATION_LIFETIME.total_seconds()))


def find_by_confirmation(session: Session, token: str) -> Account:
    """Return whose address a link confirms. Raises NotFound if it does not work."""
    account_id, _, rest = token.partition(".")
    ends_at, _, _ = rest.partition(".")
    account = session.get(Account, account_id)
    if account is None or account.email is None or account.disabled_at is not None:
        raise NotFound(UNUSABLE)
    if not ends_at.isdecimal() or len(ends_at) > MAX_TIME_DIGITS or int(ends_at) < time.time():
        raise NotFound(UNUSABLE)
    if not hmac.compare_digest(token.encode(), _sign(account, ends_at=int(ends_at)).encode()):
        raise NotFound(UNUSABLE)
    return account


def confirm_address(session: Session, token: str) -> Account:
    """Confirm the address. Raises NotFound, or Conflict if another account has."""
    account = find_by_confirmation(session, token)
    if account.email_confirmed_at is None:
        try:
            with session.begin_nested():
                account.email_confirmed_at = now()
                session.flush()
        except IntegrityError as error:
            raise Conflict(ADDRESS_TAKEN) from error
        audit.record(session, account, "account.mail_confirmed", subject=account.id)
    return account


def _sign(account: Account, *, ends_at: int) -> str:
    message = f"confirm|{account.id}|{account.email}|{ends_at}".encode()
    return f"{account.id}.{ends_at}.{hmac.new(get_settings().signing_key(), message, hashlib.sha256).hexdigest()}"


NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{1,38}[A-Za-z0-9])")
EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f-\x9f]{1,64}@[^@\s\x00-\x1f\x7f-\x9f]+\.[^@\s\x00-\x1f\x7f-\x9f]+")
RESERVED_NAMES = frozenset({"system", "admin", "administrator", "lethe", "root", "oracle", "original", "retrained"})
DELETED = "deleted-"  # begins the name that a deleted account leaves behind
TAKEN = "The name is taken; choose another"
names = account_repository.names


def register(
    session: Session, *, name: str, password: str, email: str | None = None, role: Role = Role.PARTICIPANT
) -> Account:
    """Make an account. Raises InvalidInput, or Conflict: names are unique, addresses only once confirmed."""
    _check_name(name, reserved_allowed=role is Role.ADMINISTRATOR)
    check_password(password)
    address = _checked_email(email)
    password_hash = hash_password(password)  # slow: before the transaction that others may wait for begins
    key = name_key(name)
    account_repository.lock_look_alikes(session, key)
    if account_repository.account_that_looks_like(session, key):
        raise Conflict(TAKEN)
    account = Account(name=name, name_key=key, email=address, password_hash=password_hash, role=role.value)
    try:
        with session.begin_nested():
            session.add(account)
    except IntegrityError as error:  # somebody was quicker
        raise Conflict(TAKEN) from error
    audit.record(session, account, "account.registered", subject=account.id)
    with suppress(RateLimited):  # which would tell that others name this address
        send_confirmation(session, account)
    return account


def authenticate(session: Session, *, name: str, password: str, client: str) -> Account:
    """Return the account. Raises NotAuthenticated or RateLimited; wrong names and passwords look the same."""
    key = (client, name_key(name))
    rate_limit.per_client.take(client)  # before it is checked: guesses at the same time count too
    try:
        rate_limit.per_name.take(key)
    except RateLimited:
        rate_limit.per_client.give_back(client)
        raise
    account = account_repository.account_by_name_key(session, name_key(name))
    right = verify_password(password[: MAX_LENGTH + 1], password_hash=account.password_hash if account else None)
    if account is None or not right or account.disabled_at is not None:
        raise NotAuthenticated("No account has this name and password")
    rate_limit.per_name.forget(key)
    rate_limit.per_client.give_back(client)
    return account


def change_password(session: Session, account: Account, *, old: str, new: str, code: str = "") -> None:
    """Replace the password and end every browser session. API tokens stay. Raises InvalidInput."""
    check_password(new)
    confirm(session, account, old, code=code, field="old")
    account.password_hash = hash_password(new)
    account_repository.revoke_web_sessions(session, account.id, now())
    audit.record(session, account, "account.password_changed", subject=account.id)


def change_mail(
    session: Session, account: Account, *, email: str, wants_mail: bool, password: str, code: str = ""
) -> None:
    """Set address and whether news is sent. Asks for the password; a new address has to be confirmed."""
    confirm(session, account, password, code=code)
    address = _checked_email(email)
    if address != account.email:
        account.email, account.email_confirmed_at = address, None
        send_confirmation(session, account)
    account.wants_mail = wants_mail
    audit.record(session, account, "account.mail_changed", subject=account.id)


def find(session: Session, name: str) -> Account:
    """Return the account called `name`. Raises NotFound."""
    account = account_repository.account_by_name_key(session, name_key(name))
    if account is None:
        raise NotFound(f"No account is called {name!r}")
    return account


def set_role(session: Session, account: Account, role: Role, *, actor: Account | None, reason: str) -> None:
    data = {"from": account.role, "to": role.value}
    audit.record(session, actor, "account.role_changed", subject=account.id, reason=reason, data=data)
    account.role = role.value


def disable(session: Session, account: Account, *, actor: Account | None, reason: str) -> None:
    """Ban `account`: it can no longer log in, and what it was logged in with ends."""
    account.disabled_at = now()
    account_repository.revoke_web_sessions(session, account.id, now())
    account_repository.revoke_tokens(session, account.id, now())
    audit.record(session, actor, "account.disabled", subject=account.id, reason=reason)


def enable(session: Session, account: Account, *, actor: Account | None, reason: str) -> None:
    """Lift the ban of `account`. Raises Conflict for one that its owner deleted."""
    if account.deleted_at is not None:
        raise Conflict(f"{account.name} was deleted by its owner and does not come back")
    account.disabled_at = None
    audit.record(session, actor, "account.enabled", subject=account.id, reason=reason)


def name_key(name: str) -> str:
    """Return what makes a name unique: capitals and Unicode's look-alike forms do not."""
    return look_alike_key(name)


def check_password(password: str) -> None:
    """Raise InvalidInput, without repeating the password, if it is too short or too long."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        allowed = f"needs {MIN_LENGTH} to {MAX_LENGTH} characters"
        raise InvalidInput(f"The password {allowed}", violations=(Violation("password", allowed),))


def _check_name(name: str, *, reserved_allowed: bool) -> None:
    if not NAME.fullmatch(name):
        allowed = "needs 3 to 40 of the characters a-z A-Z 0-9 . _ -, the first and last a letter or digit"
        raise InvalidInput(f"The name {allowed}", violations=(Violation("name", allowed, name[:60]),))
    key = name_key(name)
    is_reserved = get_shape(key) in {get_shape(reserved) for reserved in RESERVED_NAMES}
    if key.startswith(DELETED) or (is_reserved and not reserved_allowed):
        raise InvalidInput("The name is reserved", violations=(Violation("name", "is reserved", name),))


def clean_address(text: str) -> str:
    """Return a normalised e-mail address: no invisible characters, lower case."""
    return without_invisible(text).strip().lower()


def _checked_email(email: str | None) -> str | None:
    email = clean_address(email or "")
    if not email:
        return None
    if len(email) > 254 or not EMAIL.fullmatch(email):
        allowed = "needs the form someone@example.org"
        raise InvalidInput(f"The e-mail address {allowed}", violations=(Violation("email", allowed, email[:60]),))
    return email
