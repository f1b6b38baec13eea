"""API tokens: shown once, stored as a hash, revocable."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server.accounts import repository
from server.accounts.secrets import TOKEN_PREFIX, digest, new_token
from server.admin import audit
from server.db import now
from server.models.account import Account, ApiToken

USE_IS_NOTED_EVERY = timedelta(minutes=10)


@dataclass(frozen=True)
class IssuedToken:
    """A token at the only time when it can be read."""

    row: ApiToken
    token: str


def issue(session: Session, account: Account, *, label: str, expires_in: timedelta | None = None) -> IssuedToken:
    """Create token for `account`."""
    token = new_token(TOKEN_PREFIX)
    expires_at = now() + expires_in if expires_in else None
    row = ApiToken(account_id=account.id, label=label, token_hash=digest(token), expires_at=expires_at)
    session.add(row)
    session.flush()
    audit.record(session, account, "token.issued", subject=row.id, data={"label": label})
    return IssuedToken(row, token)


def find(session: Session, token: str) -> ApiToken | None:
    """Return the row of a token that is valid now, with its account; None for any other text."""
    row = repository.token_by_hash(session, digest(token))
    if row is None or row.revoked_at is not None or row.account.disabled_at is not None:
        return None
    return None if row.expires_at is not None and row.expires_at <= now() else row


def list_account_tokens(session: Session, account: Account) -> Sequence[ApiToken]:
    """Return the account's tokens that are not revoked, newest first."""
    return repository.get_tokens(session, account.id)


def revoke(session: Session, account: Account, token_id: str) -> None:
    """End one of the account's own tokens. Raises NotFound."""
    row = repository.get_token(session, account.id, token_id)
    if row is None:
        raise NotFound(f"You have no token {token_id!r}")
    if row.revoked_at is None:
        row.revoked_at = now()
        audit.record(session, account, "token.revoked", subject=row.id)


def use_is_due(row: ApiToken, at: datetime) -> bool:
    """Return whether the use is worth a write: `last_used_at` is right to some minutes, not to each request."""
    return row.last_used_at is None or at - row.last_used_at > USE_IS_NOTED_EVERY


def note_use(session: Session, token_id: str) -> None:
    repository.note_use(session, token_id, now())
