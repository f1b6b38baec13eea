"""API tokens: shown once, stored as a hash, revocable, for one scope and until a date."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server import audit
from server.accounts import account_repository
from server.accounts.passwords import TOKEN_PREFIX, digest, new_token
from server.db import now
from server.errors import NotAllowed
from server.models.account import Account, ApiToken, Scope

USE_IS_NOTED_EVERY = timedelta(minutes=10)
DEFAULT_LIFETIME = timedelta(days=90)
MAX_LIFETIME = timedelta(days=365)
READING = ("GET", "HEAD")
# By the tag of a route what a token needs to change something there; where no tag says so, the full scope.
SCOPES = {
    "submissions": Scope.SUBMIT,
    "teams": Scope.SUBMIT,
    "competitions": Scope.ORGANISE,
    "organisers": Scope.ORGANISE,
    "datasets": Scope.ORGANISE,
    "metrics": Scope.ORGANISE,
}
list_account_tokens = account_repository.list_account_tokens


@dataclass(frozen=True)
class IssuedToken:
    """A token at the only time when it can be read."""

    row: ApiToken
    token: str


def issue(
    session: Session,
    account: Account,
    *,
    label: str,
    scope: Scope = Scope.FULL,
    expires_in: timedelta = DEFAULT_LIFETIME,
) -> IssuedToken:
    """Create a token for `account`."""
    token = new_token(TOKEN_PREFIX)
    end = now() + min(expires_in, MAX_LIFETIME)
    row = ApiToken(account_id=account.id, label=label, scope=scope.value, token_hash=digest(token), expires_at=end)
    session.add(row)
    session.flush()
    audit.record(session, account, "token.issued", subject=row.id, data={"label": label, "scope": scope.value})
    return IssuedToken(row, token)


def find(session: Session, token: str) -> ApiToken | None:
    """Return the row of a token that is valid now, with its account; None for any other text."""
    row = account_repository.token_by_hash(session, digest(token))
    if row is None or row.revoked_at is not None or row.account.disabled_at is not None:
        return None
    return None if get_end(row) <= now() else row


def get_end(row: ApiToken) -> datetime:
    """Return when a token ends. Those of versions before this one had no end; they got a year."""
    return row.expires_at or row.created_at + MAX_LIFETIME


def needed_scope(method: str, tags: Iterable[str]) -> Scope:
    """Return what a token needs for a request to a route with these tags."""
    if method in READING:
        return Scope.READ
    return max((SCOPES.get(tag, Scope.FULL) for tag in tags), key=list(Scope).index, default=Scope.FULL)


def require_scope(row: ApiToken, needed: Scope) -> None:
    """Raise NotAllowed unless the token's scope includes `needed`."""
    if not Scope(row.scope).includes(needed):
        raise NotAllowed(
            f"This token's scope is {row.scope!r}, and this needs {needed.value!r}: create another token on the "
            f"account page, or by `lethe login --scope {needed.value}`"
        )


def revoke(session: Session, account: Account, token_id: str) -> None:
    """End one of the account's own tokens. Raises NotFound."""
    row = account_repository.get_token(session, account.id, token_id)
    if row is None:
        raise NotFound(f"You have no token {token_id!r}")
    if row.revoked_at is None:
        row.revoked_at = now()
        audit.record(session, account, "token.revoked", subject=row.id)


def use_is_due(row: ApiToken, at: datetime) -> bool:
    """Return whether the use is worth a write: `last_used_at` is right to some minutes, not to each request."""
    return row.last_used_at is None or at - row.last_used_at > USE_IS_NOTED_EVERY


def note_use(session: Session, token_id: str) -> None:
    account_repository.note_use(session, token_id, now())
