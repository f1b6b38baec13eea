"""How times and spans of time are written for people, wherever they read: on pages, in answers, in mail."""

from datetime import UTC, datetime

from server.db import now

MINUTE, HOUR, DAY = 60, 3600, 86400
UNITS = ((365 * DAY, "year"), (30 * DAY, "month"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))


def in_words(timestamp: datetime) -> str:
    """Write a timestamp to the minute, in UTC."""
    return f"{timestamp.astimezone(UTC):%d %b %Y, %H:%M} UTC"


def relative(timestamp: datetime, *, at: datetime | None = None) -> str:
    """Write how long ago a time was, or in how long it comes."""
    seconds = (timestamp - (at or now())).total_seconds()
    amount = abs(seconds)
    if amount < MINUTE:
        return "just now" if seconds <= 0 else "in less than a minute"
    size, unit = next(pair for pair in UNITS if amount >= pair[0])
    count = int(amount // size)
    words = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"in {words}" if seconds > 0 else f"{words} ago"


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
