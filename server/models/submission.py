"""A submission is a team's code, as it was received."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String, false, true
from sqlalchemy.orm import Mapped, mapped_column, relationship

from lethe.runtime.error_classes import ErrorClass
from server.db import Base, EnumText, new_id, now
from server.logging import current_request_id
from server.models.account import Account
from server.models.competition import Competition, Team, value_in


class Stage(StrEnum):
    """The stage of a submission. The last three are ends."""

    QUEUED = "queued"
    SMOKE = "smoke"  # one run on the public sample
    RUNNING = "running"
    SCORING = "scoring"
    SCORED = "scored"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({Stage.SCORED, Stage.FAILED, Stage.CANCELLED})


class Fault(StrEnum):
    PARTICIPANT = "participant"
    ORGANISER = "organiser"
    HOST = "host"


class Submission(Base):
    __tablename__ = "submissions"
    __table_args__ = (
        Index("ix_submissions_team_received", "team_id", "received_at"),
        Index("ix_submissions_competition_received", "competition_id", "received_at"),
        Index("ix_submissions_competition_stage", "competition_id", "stage"),
        value_in("stage", Stage),
        CheckConstraint("fault IS NULL OR fault IN ('participant', 'organiser', 'host')", name="fault"),
        CheckConstraint("(stage = 'failed') = (error_class IS NOT NULL)", name="failed_is_named"),
    )

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id"))
    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id"))
    # Of what goes to one task: the team's submission to the competition, which is not evaluated itself.
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"), index=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    filename: Mapped[str] = mapped_column(String(200))
    kind: Mapped[str] = mapped_column(String(8))  # py, zip
    content_sha256: Mapped[str] = mapped_column(String(64), index=True)
    size_bytes: Mapped[int]
    entry_point: Mapped[dict[str, Any]] = mapped_column(JSON)
    message: Mapped[str] = mapped_column(String(500), default="")
    request_id: Mapped[str] = mapped_column(String(64), default=current_request_id)  # of the upload, for every log
    received_at: Mapped[datetime] = mapped_column(default=now)
    phase: Mapped[str] = mapped_column(
        String(40), default="", server_default=""
    )  # of the file; "late": after the close
    is_official: Mapped[bool] = mapped_column(default=True, server_default=true())  # ranks, and may be a final
    stage: Mapped[Stage] = mapped_column(EnumText(Stage, 16), default=Stage.QUEUED)
    fault: Mapped[str | None] = mapped_column(String(16))
    error_class: Mapped[ErrorClass | None] = mapped_column(EnumText(ErrorClass, 40))
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # message, exception_type, file, line
    refunded: Mapped[bool] = mapped_column(default=False)  # does not count against the quota
    selected: Mapped[bool] = mapped_column(default=False)  # chosen for the private board
    publish_code: Mapped[bool] = mapped_column(default=False, server_default=false())  # its team lets it be published
    finished_at: Mapped[datetime | None]
    disqualified_at: Mapped[datetime | None]
    excluded_at: Mapped[datetime | None]  # the organiser's decision: not re-scored, not on the private board

    competition: Mapped[Competition] = relationship(lazy="raise")
    team: Mapped[Team] = relationship(lazy="raise")
    account: Mapped[Account] = relationship(lazy="raise")
