"""A time in an input: every calendar, time zone and database can compute with it."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(3000, 1, 1, tzinfo=UTC)


def within_range(value: datetime) -> datetime:
    """Return an aware datetime. Raises ValueError if it lies before 1970 or after 3000."""
    if not EARLIEST <= value <= LATEST:
        raise ValueError(f"must lie between the years {EARLIEST.year} and {LATEST.year}")
    return value


Timestamp = Annotated[AwareDatetime, AfterValidator(within_range)]
