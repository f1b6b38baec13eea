"""What the organisers' forms have in common: a reason, a moment."""

from datetime import UTC, datetime

from server.errors import InvalidInput, Violation


def needed(reason: str) -> str:
    """Return the reason. Raises InvalidInput if there is none."""
    if not reason.strip():
        missing = Violation("reason", "is missing")
        raise InvalidInput("A reason is needed: it stands in the audit log", violations=(missing,))
    return reason.strip()


def moment(text: str, *, field: str) -> datetime:
    """Return the moment that a form names, in UTC where it names no zone. Raises InvalidInput."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        wrong = Violation(field, "needs a date and a time, UTC", text[:40])
        raise InvalidInput(f"{text[:40]!r} is no moment", violations=(wrong,)) from error
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
