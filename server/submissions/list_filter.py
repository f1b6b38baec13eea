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
    """Which of all teams' submissions an organiser asks for. Empty means any.

    only: selected, disqualified, refunded, flagged, unconfirmed, or repeated (a file that was sent more than once).
    text: the beginning of an id or of a file's SHA-256, or part of a note, a file's name or the sender's name.
    """

    stage: str = ""
    fault: str = ""
    error_class: str = ""
    team: str = ""
    only: str = ""
    text: str = ""
    received_from: datetime | None = None
    received_before: datetime | None = None
