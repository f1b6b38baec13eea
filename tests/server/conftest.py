"""An instance for each test: `server` on SQLite, `both` on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instance import Instance, instance


@pytest.fixture
def server(migrated_sqlite_url, redis_url, tmp_path, monkeypatch):
    with instance(monkeypatch, database_url=migrated_sqlite_url, redis_url=redis_url, folder=tmp_path) as running:
        yield running


@pytest.fixture
def both(migrated_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    with instance(monkeypatch, database_url=migrated_url, redis_url=redis_url, folder=tmp_path) as running:
        yield running
