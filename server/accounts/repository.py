"""Queries about accounts, tokens and browser sessions."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session, joinedload

from server.models.account import Account, ApiToken, WebSession


def account(session: Session, account_id: str) -> Account | None:
    return session.get(Account, account_id)


def account_by_name_key(session: Session, name_key: str) -> Account | None:
    return session.scalar(select(Account).where(Account.name_key == name_key))


def account_with(session: Session, *, name_key: str, email: str | None) -> Account | None:
    """Return an account that holds this name or this address."""
    same = Account.name_key == name_key
    return session.scalar(select(Account).where(or_(same, Account.email == email) if email else same).limit(1))


def token_by_hash(session: Session, token_hash: str) -> ApiToken | None:
    return session.scalar(
        select(ApiToken).options(joinedload(ApiToken.account)).where(ApiToken.token_hash == token_hash)
    )


def tokens_of(session: Session, account_id: str) -> Sequence[ApiToken]:
    mine = select(ApiToken).where(ApiToken.account_id == account_id, ApiToken.revoked_at.is_(None))
    return session.scalars(mine.order_by(ApiToken.created_at.desc(), ApiToken.id)).all()


def token_of(session: Session, account_id: str, token_id: str) -> ApiToken | None:
    return session.scalar(select(ApiToken).where(ApiToken.account_id == account_id, ApiToken.id == token_id))


def note_use(session: Session, token_id: str, at: datetime) -> None:
    session.execute(update(ApiToken).where(ApiToken.id == token_id).values(last_used_at=at))


def web_session_by_hash(session: Session, token_hash: str) -> WebSession | None:
    return session.scalar(
        select(WebSession).options(joinedload(WebSession.account)).where(WebSession.token_hash == token_hash)
    )


def revoke_web_sessions(session: Session, account_id: str, at: datetime) -> None:
    session.execute(
        update(WebSession)
        .where(WebSession.account_id == account_id, WebSession.revoked_at.is_(None))
        .values(revoked_at=at)
    )


def revoke_tokens(session: Session, account_id: str, at: datetime) -> None:
    session.execute(
        update(ApiToken).where(ApiToken.account_id == account_id, ApiToken.revoked_at.is_(None)).values(revoked_at=at)
    )
