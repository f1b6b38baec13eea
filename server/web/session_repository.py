"""Queries about the browsers that an account is logged in with."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db import now
from server.models.account import WebSession


def active_of(session: Session, account_id: str) -> Sequence[WebSession]:
    """Return the sessions that are neither over nor revoked, newest first."""
    mine = select(WebSession).where(
        WebSession.account_id == account_id, WebSession.revoked_at.is_(None), WebSession.expires_at > now()
    )
    return session.scalars(mine.order_by(WebSession.created_at.desc(), WebSession.id)).all()


def revoke(session: Session, account_id: str, session_id: str) -> bool:
    """End one of the account's own sessions. Return whether there was such a one."""
    row = session.scalar(select(WebSession).where(WebSession.account_id == account_id, WebSession.id == session_id))
    if row is None or row.revoked_at is not None:
        return False
    row.revoked_at = now()
    return True
