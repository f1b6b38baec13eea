"""A person with a browser, without a browser: keeps cookies, follows forms, counts queries."""

import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from unittest.mock import patch

from httpx import Response
from sqlalchemy import Engine, event

from server.cost_cache import CostCache
from tests.support.instance import PASSWORD, Instance

TOKEN = re.compile(r'name="csrf_token" value="([0-9a-f]+)"')


class Visitor:
    """One browser, of nobody or of an account by its name. Forms are sent with the token of the page looked at."""

    def __init__(self, instance: Instance, name: str = "") -> None:
        self.client = instance.client
        self.client.cookies.clear()
        if name:
            self.log_in(name)

    def get(self, path: str, **options: Any) -> Response:
        return self.client.get(path, follow_redirects=options.pop("follow_redirects", False), **options)

    def token(self, page: str = "/login") -> str:
        """Return the form token of a page."""
        found = TOKEN.search(self.get(page, follow_redirects=True).text)
        assert found, f"{page} has no form"
        return found[1]

    def post(
        self, path: str, data: dict[str, str] | None = None, *, page: str | None = None, **options: Any
    ) -> Response:
        fields = {"csrf_token": self.token(page or path), **(data or {})}
        return self.client.post(path, data=fields, follow_redirects=False, **options)

    def log_in(self, name: str, password: str = PASSWORD) -> Response:
        return self.post("/login", {"name": name, "password": password})


class _Text(HTMLParser):
    """Collects the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "head")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "head")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def plain_text(html: str) -> str:
    """Return what a person reads on a page, with single spaces."""
    parser = _Text()
    parser.feed(html)
    return " ".join(" ".join(parser.parts).split())


@contextmanager
def counted_queries(engine: Engine) -> Iterator[list[str]]:
    """Collect the statements that reach the database meanwhile. Caches begin empty, and keep what they then learn."""
    seen: list[str] = []
    kept: dict[Hashable, Any] = {}

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    def get(cache: object, key: Hashable, compute: Callable[[], Any], **_options: Any) -> Any:
        place = (id(cache), key)
        if place not in kept:
            kept[place] = compute()
        return kept[place]

    event.listen(engine, "before_cursor_execute", note)
    try:
        with patch.object(CostCache, "get", get):
            yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)
