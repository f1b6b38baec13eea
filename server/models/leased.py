"""The columns of a job that workers hold under a lease."""

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column


class Leased:
    """A row that one attempt of one worker holds at a time (server/jobs/leases.py)."""

    id: Mapped[Any]
    state: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int] = mapped_column(default=0)
    failed_attempts: Mapped[int] = mapped_column(default=0)  # that lost their worker or met a fault of their host
    lease_expires_at: Mapped[datetime | None]
