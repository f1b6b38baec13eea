"""Who takes part in a competition and how they came to it, what they accepted and asked."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db import Base, new_id, now
from server.models.account import Account
from server.models.competition import Team, value_in


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


class Question(Base):
    """A person's question. With an answer for all, everybody reads `shown_text` and the answer, not who asked."""

    __tablename__ = "questions"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), index=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    text: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)
    answer: Mapped[str] = mapped_column(Text, default="")
    answered_at: Mapped[datetime | None]
    answered_by: Mapped[str | None] = mapped_column(ForeignKey("accounts.id"))
    is_public: Mapped[bool] = mapped_column(default=False)
    shown_text: Mapped[str] = mapped_column(Text, default="")  # the question in the organisers' words; empty: as asked

    account: Mapped[Account] = relationship(lazy="raise", foreign_keys=account_id)

    @property
    def public_text(self) -> str:
        """The question as everybody reads it."""
        return self.shown_text or self.text


class ParticipantState(StrEnum):
    ASKED = "asked"
    ADMITTED = "admitted"
    REFUSED = "refused"  # also who was removed later


class Participant(Base):
    """What was decided about one person. In an open competition a row exists only for who was removed."""

    __tablename__ = "participants"
    __table_args__ = (value_in("state", ParticipantState),)

    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)
    state: Mapped[str] = mapped_column(String(8))
    message: Mapped[str] = mapped_column(String(1000), default="")  # of who asks
    reason: Mapped[str] = mapped_column(String(1000), default="")  # of the decision
    created_at: Mapped[datetime] = mapped_column(default=now)
    decided_at: Mapped[datetime | None]
    decided_by: Mapped[str | None] = mapped_column(ForeignKey("accounts.id"))

    account: Mapped[Account] = relationship(lazy="raise", foreign_keys=account_id)


class AdmissionLink(Base):
    """A link that admits people to a competition. Ends when it is used up, revoked or expired."""

    __tablename__ = "admission_links"
    __table_args__ = (CheckConstraint("uses >= 0 AND uses <= most_uses", name="uses"),)

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), index=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    label: Mapped[str] = mapped_column(String(100), default="")
    created_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]
    uses: Mapped[int] = mapped_column(default=0)
    most_uses: Mapped[int]
    revoked_at: Mapped[datetime | None]


class AdmittedAddress(Base):
    """An e-mail address whose confirmed owner is admitted. Lower case."""

    __tablename__ = "admitted_addresses"

    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), primary_key=True)
    address: Mapped[str] = mapped_column(String(254), primary_key=True)
    added_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    added_at: Mapped[datetime] = mapped_column(default=now)


class CompetitionText(Base):
    """One version of a text that is kept as it was: the terms, a page. The present one is in the competition's file."""

    __tablename__ = "competition_texts"

    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # from 1
    text: Mapped[str] = mapped_column(Text)  # empty: the text was taken away
    author_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)


class TermsAcceptance(Base):
    """That a person accepted one version of a competition's terms, and when."""

    __tablename__ = "terms_acceptances"

    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    accepted_at: Mapped[datetime] = mapped_column(default=now)
