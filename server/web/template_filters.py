"""How values are written on pages: scores, shares, times, sizes."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from markupsafe import Markup, escape

from lethe.errors import Violation
from server.datetime_format import duration, in_words, relative
from server.db import now


class Explained(Protocol):
    """An error as pages show it."""

    @property
    def summary(self) -> str: ...

    @property
    def violations(self) -> Sequence[Violation]: ...


def untold(error: Explained) -> list[Violation]:
    """Return the wrong values that the error's summary does not tell already."""
    return [violation for violation in error.violations if violation.message not in error.summary]


def score(value: float | None) -> str:
    """Write a score with the digits that distinguish teams."""
    return "–" if value is None else f"{value:.5f}"


def metric(value: float | None) -> str:
    """Write a metric's value with four digits."""
    return "–" if value is None else f"{value:.4g}"


def short_name(title: str) -> str:
    """Return a metric's abbreviation where its title ends in one, else the title."""
    name, _, abbreviation = title.removesuffix(")").rpartition(" (")
    return abbreviation if name and " " not in abbreviation else title


def share(value: float | None) -> str:
    """Write a share as per cent."""
    return "–" if value is None else f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.1f} %"


def fraction(value: float) -> str:
    """Write a share that somebody has set as per cent, with all the digits that it was given."""
    return f"{100 * value:.6g} %"


def exact(timestamp: datetime) -> str:
    """Write a time in full, in UTC."""
    return f"{timestamp.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(timestamp: datetime | None) -> Markup:
    """Return a <time> that reads relatively and shows the exact time on hover; a script keeps it right."""
    if timestamp is None:
        return Markup("–")
    return _time(timestamp, "relative", title=exact(timestamp), text=relative(timestamp))


def when(timestamp: datetime | None) -> Markup:
    """Return a <time> that reads exactly; a script turns it into the reader's own zone."""
    if timestamp is None:
        return Markup("–")
    return _time(timestamp, "exact", title=relative(timestamp), text=in_words(timestamp))


def countdown(timestamp: datetime) -> Markup:
    """Return a <time> that counts down to `timestamp`."""
    left_s = max(0.0, (timestamp - now()) / timedelta(seconds=1))
    return _time(timestamp, "countdown", title=exact(timestamp), text=duration(left_s))


def _time(timestamp: datetime, kind: str, *, title: str, text: str) -> Markup:
    """Return a <time> of parts that need no escaping: they are words of ours and digits, and a list has hundreds."""
    written = timestamp.isoformat(timespec="seconds")
    return Markup(f'<time datetime="{written}" title="{title}" data-time="{kind}">{text}</time>')  # noqa: S704


def size(n_bytes: int) -> str:
    if n_bytes < 1024:
        return f"{n_bytes} B"
    if n_bytes < 1 << 20:
        return f"{n_bytes / 1024:.1f} KiB"
    return f"{n_bytes / (1 << 20):.1f} MiB" if n_bytes < 1 << 30 else f"{n_bytes / (1 << 30):.1f} GiB"


def count(value: int, word: str) -> Markup:
    """Write a number and its noun."""
    return escape(f"{value:,} {word}{'' if value == 1 else 's'}")


def drawn(by: str) -> str:
    """Return how a forget set is drawn, as words after `drawn`."""
    return {"random": "at random", "ids": "from a given list"}.get(by, f"by {by}")
