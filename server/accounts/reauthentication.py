"""The current password, asked for again before what only the owner of an account may do."""

from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, Violation
from server.accounts import rate_limit, second_factor
from server.accounts.passwords import MAX_LENGTH, verify_password
from server.models.account import Account


def confirm(session: Session, account: Account, password: str, *, code: str, field: str = "password") -> None:
    """Check the current password, and the second factor where one is on, of who is logged in.

    A browser left open is not a place to guess them. Raises InvalidInput that names `field`, CodeNeeded, or RateLimited
    after as many wrong ones as logging in allows.
    """
    rate_limit.per_account.take(account.id)  # before it is checked: guesses at the same time count too
    if not verify_password(password[: MAX_LENGTH + 1], password_hash=account.password_hash):
        raise InvalidInput("The current password is wrong", violations=(Violation(field, "is wrong"),))
    rate_limit.per_account.forget(account.id)
    second_factor.require(session, account, code)
