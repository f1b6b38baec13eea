"""People, and what they log in with. Secrets are stored only as hashes."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, String, true
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db import Base, new_id, now


class Role(StrEnum):
    PARTICIPANT = "participant"
    ORGANISER = "organiser"  # may create competitions, and runs those they organise
    ADMINISTRATOR = "administrator"


class Account(Base):
    __tablename__ = "accounts"
    __table_args__ = (CheckConstraint("role IN ('participant', 'organiser', 'administrator')", name="role"),)

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(40))
    name_key: Mapped[str] = mapped_column(String(40), unique=True)  # the name, case-folded
    email: Mapped[str | None] = mapped_column(String(254), index=True)  # of several accounts, if it must be
    password_hash: Mapped[str] = mapped_column(String(200))
    role: Mapped[str] = mapped_column(String(16), default=Role.PARTICIPANT.value)
    created_at: Mapped[datetime] = mapped_column(default=now)
    wants_mail: Mapped[bool] = mapped_column(default=True, server_default=true())  # what can be declined
    disabled_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]  # by its owner: the row stays, without what names a person


class ApiToken(Base):
    """A token for programs. The token itself is shown once and never stored."""

    __tablename__ = "api_tokens"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), index=True)
    label: Mapped[str] = mapped_column(String(100))
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship(lazy="raise")


class WebSession(Base):
    """A browser's log-in."""

    __tablename__ = "web_sessions"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), index=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    user_agent: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime] = mapped_column(default=now)
    last_seen_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship(lazy="raise")


class PasswordReset(Base):
    """A link for who forgot a password. It works once, until it expires or a newer one is made."""

    __tablename__ = "password_resets"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), index=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]  # used, or replaced by a newer one

    account: Mapped[Account] = relationship(lazy="raise")
