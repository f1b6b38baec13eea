"""Days of quotas and budgets: they begin at midnight UTC."""

from datetime import UTC, datetime, timedelta

DAY = timedelta(days=1)


def start_of_day(at: datetime) -> datetime:
    """Return the beginning of the UTC day of `at`."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
