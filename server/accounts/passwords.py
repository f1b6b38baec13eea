"""Passwords, hashed with argon2id and compared in the same time whether or not the account exists; random tokens."""

import hashlib
import secrets
from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_LENGTH = 10
MAX_LENGTH = 200  # hashing costs time; nobody types more

_hasher = PasswordHasher()
TOKEN_PREFIX = "lethe_"  # noqa: S105 (a prefix by which scanners and people know a token, not a secret)


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


def new_token(prefix: str = "") -> str:
    """Return a fresh secret of 256 random bits: digits and letters, for a leading hyphen would read as an option."""
    return prefix + secrets.token_hex(32)


def digest(token: str) -> str:
    """Return what the database keeps. A plain hash is enough: the token is random and cannot be guessed."""
    return hashlib.sha256(token.encode()).hexdigest()
