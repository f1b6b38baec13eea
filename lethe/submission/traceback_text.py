"""A failure's place in a participant's file, and its traceback as text."""

import re


def names_line(message: str, line: int) -> bool:
    """Return whether the message says that it is about this line."""
    return re.search(rf"\bline {line}\b", message) is not None


def place_beside(message: str, *, file: str | None, line: int | None) -> str:
    """Return ` (file, line 4)`; nothing where there is no such place, or the message names the line."""
    return f" ({file}, line {line})" if file and line and not names_line(message, line) else ""


START = "Traceback (most recent call last):"
CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
MAX_LINES = 20  # of a log without a traceback


def last_traceback(log: str) -> str:
    """Return the last traceback of a log with those that led to it, uncut; without one, the log's last lines."""
    lines = log.rstrip().split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(START)]
    if not starts:
        return "\n".join(lines[-MAX_LINES:])
    first = len(starts) - 1
    while first > 0 and any(line in CHAINED for line in lines[starts[first - 1] : starts[first]]):
        first -= 1
    return "\n".join(lines[starts[first] :])
