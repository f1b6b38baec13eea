"""Compiled SQL for all engines of one kind of database in a test process.

Each test has a database, and so an engine, of its own, which would compile every statement again: a sixth of the time
of the server's tests.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine


def share_statements(make_engine: Callable[..., Engine]) -> Callable[..., Engine]:
    """Return `make_engine` with engines that look up statements where the first of their kind does.

    The first that has connected: what a dialect knows of a server it asks then.
    """
    first: dict[str, Engine] = {}

    def make(url: str, **options: Any) -> Engine:
        engine = make_engine(url, **options)
        like = first.get(engine.dialect.name)
        if like is None or like.dialect.server_version_info is None:
            like = first[engine.dialect.name] = engine
        engine.dialect, engine._compiled_cache = like.dialect, like._compiled_cache  # the dialect is part of the keys
        return engine

    return make
