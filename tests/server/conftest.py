"""An instance for each test: `server` on SQLite, `both` on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config import get_settings
from server.models.account import Account, Role
from server.models.competition import Competition
from tests.support.instance import Instance, instance
from tests.support.web import Visitor


@pytest.fixture
def server(migrated_sqlite_url, redis_url, tmp_path, monkeypatch):
    with instance(monkeypatch, database_url=migrated_sqlite_url, redis_url=redis_url, folder=tmp_path) as running:
        yield running


@pytest.fixture
def both(migrated_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    with instance(monkeypatch, database_url=migrated_url, redis_url=redis_url, folder=tmp_path) as running:
        yield running


@pytest.fixture
def visitor(server: Instance) -> Visitor:
    """A person's browser on the instance."""
    return Visitor(server)


@pytest.fixture
def olga(server: Instance) -> Account:
    """An organiser."""
    return server.account("olga", Role.ORGANISER)


@pytest.fixture
def organiser(server: Instance, olga: Account) -> dict[str, str]:
    """The headers of the organiser's requests."""
    return server.headers(olga)


@pytest.fixture
def of_digits(server: Instance, olga: Account, organiser: dict[str, str]) -> dict[str, str]:
    """The headers of the organiser, who runs an open competition."""
    server.competition(organiser=olga)
    return organiser


@pytest.fixture
def mail(server: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the instance queue mails."""
    monkeypatch.setenv("LETHE_SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("LETHE_MAIL_FROM", "lethe@example.org")
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
def digits(server: Instance, olga: Account, visitor: Visitor) -> Competition:
    """A competition whose organiser is logged in."""
    competition = server.competition(organiser=olga)
    visitor.log_in("olga")
    return competition
