"""How moments and spans of time are written for people, wherever they read: on pages, in answers, in mail."""

from datetime import UTC, datetime

MINUTE, HOUR, DAY = 60, 3600, 86400


def in_words(moment: datetime) -> str:
    """Write a moment to the minute, in UTC."""
    return f"{moment.astimezone(UTC):%d %b %Y, %H:%M} UTC"


def duration(seconds: float | None) -> str:
    """Write a span of time with its two largest units."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.0f} s" if seconds == int(seconds) else f"{seconds:.1f} s"
    whole = round(seconds)
    parts = [(whole // DAY, "d"), (whole % DAY // HOUR, "h"), (whole % HOUR // MINUTE, "min"), (whole % MINUTE, "s")]
    first = next(index for index, (amount, _) in enumerate(parts) if amount)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount)
