"""Which audit events are wanted."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class EventFilter:
    """Which audit events are wanted. None: all."""

    competition_id: str | None = None
    action: str | None = None
    actor: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None
