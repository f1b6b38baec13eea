"""Whether an address is its account's: a link is sent there, and whoever follows it has confirmed it.

Nothing else is sent to an address before, and of several accounts that name it one can confirm it. Nobody learns of
the others: only who reads the address's mail is told that another account has it.
"""

import hashlib
import hmac
import time
from datetime import timedelta

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server import audit
from server.accounts import rate_limit
from server.config import get_settings
from server.db import now
from server.errors import Conflict
from server.models.account import Account
from server.notifications import outbox

LIFETIME = timedelta(days=3)
MAX_TIME_DIGITS = 12  # digits of a time in seconds
UNUSABLE = "The link does not work: it has expired, or the account has another address now"
TAKEN = "Another account has confirmed this address; remove it there first, or give this account another"
LETTER = """\
Hello {name},

your account names this address. If that was you, confirm it here, within {days} days:

{link}

If it was not you, there is nothing to do: without this, no more mail comes here.
"""


def send_letter(session: Session, account: Account) -> bool:
    """Queue a letter with a link to an address that is not confirmed. Return whether. Raises RateLimited."""
    if account.email is None or account.email_confirmed_at is not None or not outbox.sends_mail():
        return False
    rate_limit.confirmations.take(account.email)
    link = outbox.page_url(f"/confirm?token={make_token(account)}")
    body = LETTER.format(name=account.name, link=link, days=LIFETIME.days)
    return outbox.queue_mail(session, to=account.email, subject="Confirm your address", body=body)


def make_token(account: Account) -> str:
    """Return the token that confirms the account's present address, for some days."""
    return _sign(account, ends_at=int(time.time() + LIFETIME.total_seconds()))


def find_account(session: Session, token: str) -> Account:
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


def confirm(session: Session, token: str) -> Account:
    """Confirm the address. Raises NotFound, or Conflict if another account has."""
    account = find_account(session, token)
    if account.email_confirmed_at is None:
        try:
            with session.begin_nested():
                account.email_confirmed_at = now()
                session.flush()
        except IntegrityError as error:
            raise Conflict(TAKEN) from error
        audit.record(session, account, "account.mail_confirmed", subject=account.id)
    return account


def _sign(account: Account, *, ends_at: int) -> str:
    message = f"confirm|{account.id}|{account.email}|{ends_at}".encode()
    return f"{account.id}.{ends_at}.{hmac.new(get_settings().signing_key(), message, hashlib.sha256).hexdigest()}"
