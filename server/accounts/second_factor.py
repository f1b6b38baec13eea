"""A second factor beside the password: a code of an authenticator (TOTP, RFC 6238), or a recovery code, each once.

The secret is not stored. It is derived from the instance's key and a salt, so the database alone gives no codes; and a
new instance's key ends every second factor, which an operator then resets.
"""

import base64
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass

import pyotp
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, Violation
from server import audit
from server.accounts import account_repository, rate_limit
from server.accounts.passwords import MAX_LENGTH, digest, verify_password
from server.config import get_settings
from server.db import now
from server.errors import Conflict, NotAuthenticated
from server.models.account import Account

ISSUER = "Lethe"
STEP_S = 30
DIGITS = 6
DRIFT_STEPS = 1  # that a device's clock may be off, either way
N_RECOVERY_CODES = 10
NEEDED = "This account has a second factor: give its code too, or a recovery code"
WRONG = "The code of the second factor is wrong, has expired or was used before"
count_recovery_codes = account_repository.count_recovery_codes


class CodeNeeded(NotAuthenticated):
    """The password is right, and a code is missing."""

    def __init__(self) -> None:
        super().__init__(NEEDED, violations=(Violation("code", "is missing"),))


@dataclass(frozen=True)
class Setup:
    """What an authenticator is given: as text, and as the address that some take over."""

    secret: str
    uri: str


def is_on(account: Account) -> bool:
    return account.totp_on_at is not None


def begin(account: Account) -> Setup:
    """Return a fresh secret for `account`, which counts once a code of it is shown. Raises Conflict if one is on."""
    if is_on(account):
        raise Conflict("A second factor is on already; switch it off first")
    account.totp_salt = secrets.token_hex(16)
    return show(account)


def show(account: Account) -> Setup:
    """Return the secret that waits for its first code. Raises Conflict if none does."""
    if account.totp_salt is None or is_on(account):
        raise Conflict("No second factor waits for its first code; begin again")
    secret = _secret(account)
    return Setup(secret, pyotp.TOTP(secret).provisioning_uri(name=account.name, issuer_name=ISSUER))


def switch_on(session: Session, account: Account, code: str, *, kept_session: str = "") -> list[str]:
    """Ask for the code from now on, log out every other browser, and return the recovery codes, readable only now.

    kept_session: the token of the browser that stays logged in. Raises InvalidInput for a wrong code, or Conflict if
    nothing was begun.
    """
    show(account)
    _check(session, account, code)
    account.totp_on_at = now()
    codes = [secrets.token_hex(5) for _ in range(N_RECOVERY_CODES)]
    account_repository.replace_recovery_codes(session, account.id, [_digest(account.id, each) for each in codes])
    account_repository.revoke_web_sessions(session, account.id, now(), kept_hash=digest(kept_session))
    audit.record(session, account, "account.second_factor_on", subject=account.id)
    return codes


def require(session: Session, account: Account, code: str) -> None:
    """Check and use up the code of an account with a second factor. Raises CodeNeeded, InvalidInput, RateLimited."""
    if not is_on(account):
        return
    if not code.strip():
        raise CodeNeeded
    _check(session, account, code)


def switch_off(session: Session, account: Account, *, actor: Account | None, reason: str = "") -> None:
    """Ask for the password alone from now on. actor: None for the server's own command line."""
    if account.totp_salt is None:
        raise Conflict(f"{account.name} has no second factor")
    account.totp_salt = account.totp_on_at = account.totp_step = None
    account_repository.replace_recovery_codes(session, account.id, [])
    audit.record(session, actor, "account.second_factor_off", subject=account.id, reason=reason)


def _check(session: Session, account: Account, code: str) -> None:
    rate_limit.per_code.take(account.id)  # before it is checked: guesses at the same time count too
    given = "".join(code.split()).replace("-", "").lower()
    if not (_use_code(session, account, given) or _use_recovery_code(session, account, given)):
        raise InvalidInput(WRONG, violations=(Violation("code", "is wrong, has expired or was used before"),))
    rate_limit.per_code.forget(account.id)


def _use_code(session: Session, account: Account, given: str) -> bool:
    if account.totp_salt is None or len(given) != DIGITS:
        return False
    totp, step = pyotp.TOTP(_secret(account)), int(time.time()) // STEP_S
    for each in range(step - DRIFT_STEPS, step + DRIFT_STEPS + 1):
        if hmac.compare_digest(totp.at(each * STEP_S).encode(), given.encode()):
            return account_repository.use_totp_step(session, account.id, each)
    return False


def _use_recovery_code(session: Session, account: Account, given: str) -> bool:
    return is_on(account) and account_repository.use_recovery_code(session, _digest(account.id, given), now())


def _secret(account: Account) -> str:
    message = f"totp|{account.id}|{account.totp_salt}".encode()
    return base64.b32encode(hmac.new(get_settings().signing_key(), message, hashlib.sha1).digest()).decode()


def _digest(account_id: str, code: str) -> str:
    """Return what the database keeps of a recovery code. Keyed: its 40 bits could be tried against a plain hash."""
    message = f"recovery|{account_id}|{code}".encode()
    return hmac.new(get_settings().signing_key(), message, hashlib.sha256).hexdigest()


def confirm(session: Session, account: Account, password: str, *, code: str, field: str = "password") -> None:
    """Check password and second factor of who is logged in. Raises InvalidInput, CodeNeeded, RateLimited."""
    rate_limit.per_account.take(account.id)  # before it is checked: guesses at the same time count too
    if not verify_password(password[: MAX_LENGTH + 1], password_hash=account.password_hash):
        raise InvalidInput("The current password is wrong", violations=(Violation(field, "is wrong"),))
    rate_limit.per_account.forget(account.id)
    require(session, account, code)
