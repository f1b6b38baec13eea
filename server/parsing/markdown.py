"""Organisers' Markdown as HTML, rendered in a process that can be killed."""

from functools import lru_cache

from markupsafe import Markup, escape

from lethe.errors import HostFault
from server.parsing.client import Unreadable, run_if_free


def markdown(text: str) -> Markup:
    """Return Markdown as HTML; as it was written, if it cannot be rendered."""
    try:
        return _rendered(text)
    except HostFault:  # too many are rendered now: the next page may have it
        return _as_written(text)


@lru_cache(maxsize=256)
def _rendered(text: str) -> Markup:
    try:
        return Markup(run_if_free("render_markdown", text.encode()))  # noqa: S704 (the parser escapes; html is off)
    except (Unreadable, UnicodeEncodeError):
        return _as_written(text)


def _as_written(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(escape(text))
