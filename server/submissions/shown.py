"""What a list of submissions may be asked for."""

from enum import StrEnum


class Show(StrEnum):
    """Which of a team's submissions a list shows. `best`: those with a public score that counts, the best first."""

    NEWEST = "newest"
    BEST = "best"
    FINALS = "finals"
    FAILED = "failed"
