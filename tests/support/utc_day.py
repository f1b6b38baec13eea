"""Quotas and budgets count by the UTC day: a test of them must not begin in one day and end in the next."""

from datetime import datetime, timedelta

TAKES_S = 30.0
TAKE_LONGER_S = {"tests/end_to_end/test_played_competition.py": 400.0}


def day_needed_s(nodeid: str) -> float:
    """Return how long the day must last yet when this test begins, seconds."""
    return next((needed for file, needed in TAKE_LONGER_S.items() if nodeid.startswith(file)), TAKES_S)


def until_next_day_s(at: datetime, *, needed_s: float) -> float:
    """Return how long to wait for a day that lasts long enough, seconds: nothing, or until midnight UTC."""
    midnight = (at + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    left_s = (midnight - at).total_seconds()
    return left_s if left_s < needed_s else 0.0
