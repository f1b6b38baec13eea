"""Where a failure happened, for a message that may say so itself."""

import re


def names_line(message: str, line: int) -> bool:
    """Return whether the message says that it is about this line."""
    return re.search(rf"\bline {line}\b", message) is not None


def place_beside(message: str, *, file: str | None, line: int | None) -> str:
    """Return ` (file, line 4)`; nothing where there is no such place, or the message names the line."""
    return f" ({file}, line {line})" if file and line and not names_line(message, line) else ""
