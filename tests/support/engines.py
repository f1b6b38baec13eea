"""The engines of a test process: they share compiled SQL, and each is closed at the end of the test that made it.

Each test has a database, and so an engine, of its own, which would compile every statement again: a sixth of the time
of the server's tests. Python 3.13 warns of each connection to SQLite that is not closed.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine


class Engines:
    """What makes engines in the tests in place of `make_engine`."""

    def __init__(self, make_engine: Callable[..., Engine]) -> None:
        self._make_engine = make_engine
        self._first: dict[str, Engine] = {}
        self._made: list[Engine] = []

    def make(self, url: str, **options: Any) -> Engine:
        """Return an engine that looks up statements where the first of its kind does.

        The first that has connected: what a dialect knows of a server it asks then.
        """
        engine = self._make_engine(url, **options)
        like = self._first.get(engine.dialect.name)
        if like is None or like.dialect.server_version_info is None:
            like = self._first[engine.dialect.name] = engine
        engine.dialect, engine._compiled_cache = like.dialect, like._compiled_cache  # the dialect is part of the keys
        self._made.append(engine)
        return engine

    def close(self) -> None:
        """Close the connections of all that were made since the last time; who still uses one gets a new connection."""
        for engine in self._made:
            engine.dispose()
        self._made.clear()
