"""Breaks the prose of a generated page into lines that are read well in an editor."""

import re
from textwrap import wrap

WIDTHS = range(130, 100, -1)  # the first at which no line begins as something else
_BEGINS_OTHERWISE = re.compile(r"\s*([-+*>#|]|\d+[.)]|=+$)")


def wrapped(page: str) -> str:
    """Return a Markdown page with its paragraphs and list items in lines; tables, headings and code stay."""
    lines: list[str] = []
    in_code = False
    for line in page.split("\n"):
        in_code ^= line.startswith("```")
        is_prose = not in_code and not line.startswith(("|", "#", "    ", "```"))
        lines += _broken(line) if is_prose and len(line) > WIDTHS[0] else [line]
    return "\n".join(lines)


def _broken(line: str) -> list[str]:
    indent = "  " if line.startswith(("- ", "* ")) else ""
    for width in WIDTHS:
        found = wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        if not any(_BEGINS_OTHERWISE.match(each) for each in found[1:]):
            return found
    return [line]
