"""Browsers' log-ins. The pages keep the token in a cookie; the database knows only its hash."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server.accounts import account_repository
from server.accounts.passwords import digest, new_token
from server.db import now
from server.models.account import Account, WebSession

USER_AGENT_LENGTH = 200


def create(session: Session, account: Account, *, user_agent: str, lifetime: timedelta) -> str:
    """Start a browser session. Return its token, for the cookie."""
    token = new_token()
    session.add(
        WebSession(
            account_id=account.id,
            token_hash=digest(token),
            user_agent=user_agent[:USER_AGENT_LENGTH],
            expires_at=now() + lifetime,
        )
    )
    return token


def find(session: Session, token: str) -> Account | None:
    """Return the account that a cookie's token belongs to now, or None."""
    row = account_repository.web_session_by_hash(session, digest(token))
    if row is None or row.revoked_at is not None or row.expires_at <= now():
        return None
    return None if row.account.disabled_at is not None else row.account


def revoke(session: Session, token: str) -> None:
    """End the browser session of `token`, if there is one."""
    row = account_repository.web_session_by_hash(session, digest(token))
    if row is not None and row.revoked_at is None:
        row.revoked_at = now()


def list_active(session: Session, account: Account) -> Sequence[WebSession]:
    """Return the browsers that the account is logged in with, the newest first."""
    return account_repository.active_web_sessions(session, account.id, now())


def revoke_by_id(session: Session, account: Account, session_id: str) -> None:
    """End one of the account's own browser sessions. Raises NotFound."""
    row = account_repository.web_session(session, account_id=account.id, session_id=session_id)
    if row is None or row.revoked_at is not None:
        raise NotFound("You are not logged in there")
    row.revoked_at = now()


def revoke_all(session: Session, account: Account) -> None:
    """End every browser session of `account`."""
    account_repository.revoke_web_sessions(session, account.id, now())
