"""What failures on hidden data have revealed to teams, in bits. Rows are added, never changed."""

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, now


class Disclosure(Base):
    """One failure as shown to its team. It counts against the budget of the submission's current team."""

    __tablename__ = "disclosures"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"))
    bits: Mapped[float]
    disclosed_at: Mapped[datetime] = mapped_column(default=now)
