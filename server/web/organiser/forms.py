"""What the organisers' forms have in common: a reason, a timestamp."""

from datetime import UTC, datetime

from lethe.competition.section import within_range
from lethe.errors import InvalidInput, Violation


def needed(reason: str) -> str:
    """Return the reason. Raises InvalidInput if there is none."""
    if not reason.strip():
        missing = Violation("reason", "is missing")
        raise InvalidInput("A reason is needed: it is recorded in the audit log", violations=(missing,))
    return reason.strip()


def timestamp(text: str, *, field: str) -> datetime:
    """Return the timestamp that a form names, in UTC where it names no zone. Raises InvalidInput."""
    try:
        found = datetime.fromisoformat(text.strip())
        found = within_range(found if found.tzinfo else found.replace(tzinfo=UTC))
    except ValueError as error:
        wrong = Violation(field, "needs a date and a time, UTC", text[:40])
        raise InvalidInput(f"{text[:40]!r} is not a timestamp", violations=(wrong,)) from error
    return found.astimezone(UTC)
