"""How values are written on pages: scores, shares, times, sizes, Markdown."""

from datetime import UTC, datetime, timedelta

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from server.db import now
from server.moments import DAY, HOUR, MINUTE, duration, in_words

UNITS = ((365 * DAY, "year"), (30 * DAY, "month"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))

_markdown = MarkdownIt("js-default", {"html": False, "linkify": False})


def score(value: float | None) -> str:
    """Write a score with the digits that tell teams apart."""
    return "–" if value is None else f"{value:.5f}"


def share(value: float | None) -> str:
    """Write a share as per cent."""
    return "–" if value is None else f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.1f} %"


def fraction(value: float) -> str:
    """Write a share that somebody has set as per cent, with all the digits that it was given."""
    return f"{100 * value:.6g} %"


def relative(moment: datetime, *, at: datetime | None = None) -> str:
    """Write how long ago, or in how long."""
    seconds = (moment - (at or now())).total_seconds()
    amount = abs(seconds)
    if amount < MINUTE:
        return "just now" if seconds <= 0 else "in less than a minute"
    size, unit = next(pair for pair in UNITS if amount >= pair[0])
    count = int(amount // size)
    words = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"in {words}" if seconds > 0 else f"{words} ago"


def exact(moment: datetime) -> str:
    """Write a moment in full, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(moment: datetime | None) -> Markup:
    """Return a <time> that reads relatively and tells the exact moment on hover; a script keeps it right."""
    if moment is None:
        return Markup("–")
    return _time(moment, "relative", title=exact(moment), text=relative(moment))


def when(moment: datetime | None) -> Markup:
    """Return a <time> that reads exactly; a script turns it into the reader's own zone."""
    if moment is None:
        return Markup("–")
    return _time(moment, "exact", title=relative(moment), text=in_words(moment))


def countdown(moment: datetime) -> Markup:
    """Return a <time> that counts down to `moment`."""
    left_s = max(0.0, (moment - now()) / timedelta(seconds=1))
    return _time(moment, "countdown", title=exact(moment), text=duration(left_s))


def _time(moment: datetime, kind: str, *, title: str, text: str) -> Markup:
    """Return a <time> of parts that need no escaping: they are words of ours and digits, and a list has hundreds."""
    written = moment.isoformat(timespec="seconds")
    return Markup(f'<time datetime="{written}" title="{title}" data-time="{kind}">{text}</time>')  # noqa: S704


def size(n_bytes: int) -> str:
    if n_bytes < 1024:
        return f"{n_bytes} B"
    return f"{n_bytes / 1024:.1f} KiB" if n_bytes < 1 << 20 else f"{n_bytes / (1 << 20):.1f} MiB"


def count(value: int, word: str) -> Markup:
    """Write a number and its noun."""
    return escape(f"{value:,} {word}{'' if value == 1 else 's'}")


def markdown(text: str) -> Markup:
    """Return an organiser's Markdown as HTML. Raw HTML in it is shown, not obeyed."""
    return Markup(_markdown.render(text))  # noqa: S704 (the parser escapes; html is off)
