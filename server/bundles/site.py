"""The pages of a bundle: plain HTML that opens from a folder, without a script, a server or a network."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from server.parsing.markdown import markdown
from server.template_environment import TEMPLATES, new_environment

FOLDER = TEMPLATES / "bundle"
STYLE = "style.css"
IMAGE = re.compile(r'<img src="([^"]*)" alt="([^"]*)"[^>]*>')
PAGES = {
    "index.html": "Leaderboards",
    "entries.html": "Entries",
    "about.html": "Competition",
    "data.html": "Data and replay",
}


def pages(content: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each page and of its style. content: what the bundle's JSON files hold."""
    places = {part["submission"]: entry["id"] for entry in content["entries"] for part in entry["parts"]}
    for name in PAGES:
        html = environment().get_template(name).render(page=name, pages=PAGES, places=places, **content)
        yield name, html.encode()
    yield STYLE, (FOLDER / STYLE).read_bytes()


@lru_cache
def environment() -> Environment:
    """Return the templates' environment, made once."""
    made = new_environment(FOLDER)
    made.filters.update(score=_score, when=_when, markdown=_text)
    return made


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.5f}"


def _when(value: str | None) -> str:
    return f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M} UTC" if value else "–"


def _text(text: str) -> Markup:
    """Return Markdown as HTML; pictures, which lie elsewhere, as links."""
    return Markup(IMAGE.sub(r'<a href="\1">\2</a>', str(markdown(text))))  # noqa: S704 (of what the parser has escaped)
