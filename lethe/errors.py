"""One tree of errors. Each says what was wrong, the value, and what is allowed.

A server gives each kind an HTTP status; nothing here knows HTTP.
"""

import re
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Self

from pydantic import ValidationError

MAX_NAMED = 100  # wrong values of one file or form: somebody may write any number
UNKNOWN = "is not known: nothing of this name can be set"
PLAIN = {
    "Extra inputs are not permitted": UNKNOWN,
    "Field required": "is missing",
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should have timezone info": "must name its time zone, as 2030-01-31T09:00:00Z (Z: UTC) or …+02:00 do",
}
NAMED_FIELD = re.compile(r"([a-z_]+(?:\.\w+)*): (.+)", re.DOTALL)
SHOULD = re.compile(r"^(Input|Value|Data|String|List|Tuple|Set|Dictionary) should ")


@dataclass(frozen=True)
class Violation:
    """One wrong value: where it is, what it was, what is allowed."""

    field: str
    message: str
    value: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" + (f" (was {self.value})" if self.value else "")


class AppError(Exception):
    """Base of every expected error. `slug` names its kind.

    detail: everything, for who reads nothing else. summary: the same without what `violations` say one by one.
    """

    slug: ClassVar[str] = "bad-request"
    title: ClassVar[str] = "The request cannot be carried out"

    def __init__(
        self,
        detail: str,
        *,
        violations: tuple[Violation, ...] = (),
        retry_after_s: int | None = None,
        summary: str = "",
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.summary = summary or detail
        self.violations = violations
        self.retry_after_s = retry_after_s


class NotFound(AppError):
    slug, title = "not-found", "Not found"


class InvalidInput(AppError):
    slug, title = "invalid-input", "Check your input"

    @classmethod
    def from_violations(cls, violations: tuple[Violation, ...], *, source: str) -> Self:
        """Return the error of a file or a form, called `source`, that has these wrong values; the first are named."""
        if len(violations) == 1:
            return cls(f"{source}: {violations[0]}", violations=violations)
        summary, named = f"{source}: {len(violations)} wrong values", violations[:MAX_NAMED]
        lines = "".join(f"\n  {violation}" for violation in named)
        if len(named) < len(violations):
            summary += f", of which the first {MAX_NAMED} are named"
            lines += f"\n  and {len(violations) - MAX_NAMED} more"
        return cls(f"{source}:{lines}", violations=named, summary=summary)

    @classmethod
    def from_validation(cls, error: ValidationError, *, source: str) -> Self:
        """Return pydantic's findings as such an error."""
        return cls.from_violations(list_violations(error), source=source)


class InvalidSubmission(InvalidInput):
    slug, title = "invalid-submission", "The submission cannot be run"


class InvalidCompetitionFile(InvalidInput):
    slug, title = "invalid-competition-file", "The competition file has mistakes"


class HostFault(AppError):
    """The host's own failure: retried, alerted, never shown as the participant's."""

    slug, title = "host-fault", "Platform failure"


def list_violations(error: ValidationError) -> tuple[Violation, ...]:
    """Return pydantic's findings in our words. A check of several fields begins with the one that it names."""
    found = []
    for item in error.errors():
        field, message = ".".join(str(part) for part in item["loc"]), plain_message(item["msg"])
        if not field and (named := NAMED_FIELD.fullmatch(message)):
            field, message = named.groups()
        found.append(Violation(field or "file", message, _shown(item.get("input"))))
    return tuple(found)


def plain_message(message: str) -> str:
    """Return pydantic's message as words that follow a field's name: `must be greater than 0`."""
    return PLAIN.get(message) or SHOULD.sub("must ", message.removeprefix("Value error, "))


def _shown(value: object) -> str | None:
    if value is None or isinstance(value, dict | list):
        return None
    text = value.isoformat() if isinstance(value, date) else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
