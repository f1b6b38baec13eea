"""The present password, asked for again before what only the owner of an account may do."""

from server.accounts import throttle
from server.accounts.passwords import MAX_LENGTH, verify_password
from server.errors import InvalidInput, Violation
from server.models.account import Account


def confirm(account: Account, password: str, *, field: str = "password") -> None:
    """Check the present password of who is logged in: a browser left open is no place to guess it.

    Raises InvalidInput that names `field`, or RateLimited after as many wrong passwords as logging in allows.
    """
    throttle.per_account.check(account.id)
    if not verify_password(password[: MAX_LENGTH + 1], password_hash=account.password_hash):
        throttle.per_account.count(account.id)
        raise InvalidInput("The present password is wrong", violations=(Violation(field, "is wrong"),))
    throttle.per_account.forget(account.id)
