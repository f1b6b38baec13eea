"""Random secrets that people hold and the database knows only as SHA-256."""

import hashlib
import secrets

TOKEN_PREFIX = "lethe_"  # noqa: S105 (a prefix by which scanners and people know a token, not a secret)


def new_token(prefix: str = "") -> str:
    """Return a fresh secret of 256 random bits: digits and letters, for a leading hyphen would read as an option."""
    return prefix + secrets.token_hex(32)


def digest(token: str) -> str:
    """Return what the database keeps. A plain hash is enough: the token is random and cannot be guessed."""
    return hashlib.sha256(token.encode()).hexdigest()
