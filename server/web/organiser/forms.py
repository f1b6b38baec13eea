"""What the organisers' forms have in common: a change of the competition, a reason, a timestamp."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lethe.competition.section import within_range
from lethe.errors import InvalidInput, Violation
from server.admin import competition_edits
from server.admin.competition_edits import Change
from server.web.place_request import OrganiserRequest


def change(asked: OrganiserRequest, values: Mapping[str, Any], *, act: str = "save", reason: str = "") -> Change:
    """Change the competition, or show with the act `preview` what that would do. Raises AppError."""
    return competition_edits.change(
        asked.session, asked.competition, values, actor=asked.viewer, reason=reason, preview=act == "preview"
    )


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
