"""What a list of submissions may be asked for."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Show(StrEnum):
    """Which of a team's submissions a list shows. `best`: those with a public score that counts, the best first."""

    NEWEST = "newest"
    BEST = "best"
    FINALS = "finals"
    FAILED = "failed"


@dataclass(frozen=True)
class SubmissionFilter:
    """Which submissions an organiser asks for; empty: any. text: start of id or hash, part of note, file, sender."""

    stage: str = ""
    fault: str = ""
    error_class: str = ""
    team: str = ""
    only: str = ""
    text: str = ""
    received_from: datetime | None = None
    received_before: datetime | None = None
