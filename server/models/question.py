"""Questions to a competition's organisers, and their answers."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db import Base, new_id, now
from server.models.account import Account


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
