"""Passwords: hashed with argon2id, compared in the same time whether or not the account exists."""

from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_LENGTH = 10
MAX_LENGTH = 200  # hashing costs time; nobody types more

_hasher = PasswordHasher()


def hash_password(password: str) -> str:
    """Return the argon2id hash of `password`, with its parameters and salt."""
    return _hasher.hash(password)


def verify_password(password: str, *, password_hash: str | None) -> bool:
    """Return whether `password` is the hashed one. None (no such account) takes as long and is never right."""
    try:
        return _hasher.verify(password_hash or _nobody(), password) and password_hash is not None
    except (VerificationError, InvalidHashError):
        return False


@lru_cache
def _nobody() -> str:
    return _hasher.hash("no account has this password")
