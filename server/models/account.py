"""Accounts, their credentials (stored only as hashes), and the audit log, whose rows are only ever added."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String, Text, text, true
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db import Base, database_time, new_id, now


class LastTime(Base):
    __tablename__ = "last_times"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    at: Mapped[datetime] = mapped_column(default=database_time())


class AuditEvent(Base):
    __tablename__ = "audit_events"
    # Read newest first, page by page, by its id: each filter that stands alone has an index in that order.
    __table_args__ = (
        Index("ix_audit_events_competition_at", "competition_id", "at"),
        Index("ix_audit_events_competition", "competition_id", "id"),
        Index("ix_audit_events_subject", "subject", "id"),
        Index("ix_audit_events_action", "action", "id"),
        Index("ix_audit_events_actor", "actor", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(default=now)
    actor_id: Mapped[str | None] = mapped_column(ForeignKey("accounts.id"))
    actor: Mapped[str] = mapped_column(String(60))  # the name at that time; "system" for what happens by itself
    competition_id: Mapped[str | None] = mapped_column(ForeignKey("competitions.id"))
    action: Mapped[str] = mapped_column(String(60))  # e.g. submission.received, competition.closed
    subject: Mapped[str] = mapped_column(String(80), default="")
    reason: Mapped[str] = mapped_column(Text, default="")
    data: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)


class Role(StrEnum):
    PARTICIPANT = "participant"
    ORGANISER = "organiser"  # may create competitions, and runs those they organise
    ADMINISTRATOR = "administrator"


class Scope(StrEnum):
    """What a token is good for. Each includes those before it."""

    READ = "read"  # whatever its account may see
    SUBMIT = "submit"  # also what a participant does: submissions, teams
    ORGANISE = "organise"  # also what an organiser does in competitions
    FULL = "full"  # also the account itself, and what an administrator does

    def includes(self, other: "Scope") -> bool:
        order = list(Scope)
        return order.index(other) <= order.index(self)


CONFIRMED = text("email_confirmed_at IS NOT NULL")


class Account(Base):
    __tablename__ = "accounts"
    __table_args__ = (
        CheckConstraint("role IN ('participant', 'organiser', 'administrator')", name="role"),
        Index("uq_accounts_confirmed", "email", unique=True, sqlite_where=CONFIRMED, postgresql_where=CONFIRMED),
    )

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(40))
    name_key: Mapped[str] = mapped_column(String(40), unique=True)  # the name, case-folded
    email: Mapped[str | None] = mapped_column(String(254), index=True)  # of several accounts, if it must be
    email_confirmed_at: Mapped[datetime | None]  # by a link that was sent there; of one account only
    password_hash: Mapped[str] = mapped_column(String(200))
    totp_salt: Mapped[str | None] = mapped_column(String(32))  # of the second factor's secret; also before it is on
    totp_on_at: Mapped[datetime | None]
    totp_step: Mapped[int | None]  # of the last code that was used: none is taken twice
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
    scope: Mapped[str] = mapped_column(String(8), default=Scope.FULL.value, server_default=Scope.FULL.value)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship(lazy="raise")


class RecoveryCode(Base):
    """A code that stands in for the second factor, once."""

    __tablename__ = "recovery_codes"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), index=True)
    code_hash: Mapped[str] = mapped_column(String(64), unique=True)
    used_at: Mapped[datetime | None]


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
