"""How teams grow: invitations by link or by name, and requests to merge."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db import Base, new_id, now
from server.models.account import Account
from server.models.competition import Team


class Invitation(Base):
    """To whoever holds the link, or to one person by name. Ends when used, revoked or expired."""

    __tablename__ = "invitations"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id", ondelete="CASCADE"), index=True)
    account_id: Mapped[str | None] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), index=True)
    token_hash: Mapped[str | None] = mapped_column(String(64), unique=True)
    created_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]  # used, declined or revoked

    team: Mapped[Team] = relationship(lazy="raise")
    account: Mapped[Account | None] = relationship(lazy="raise", foreign_keys=account_id)


class MergeRequest(Base):
    """One team asks to become part of another; the other's leader answers."""

    __tablename__ = "merge_requests"
    __table_args__ = (UniqueConstraint("team_id", "into_id"),)

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id", ondelete="CASCADE"))
    into_id: Mapped[str] = mapped_column(ForeignKey("teams.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(default=now)

    team: Mapped[Team] = relationship(lazy="raise", foreign_keys=team_id)
    into: Mapped[Team] = relationship(lazy="raise", foreign_keys=into_id)
