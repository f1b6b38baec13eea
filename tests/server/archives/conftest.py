"""A competition that was played to its reveal, in a file, and another instance."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.archives.exporter import write
from server.config import get_settings
from tests.support.archives import Other, play
from tests.support.instance import Instance


@pytest.fixture
def elsewhere(migrated_postgres_url: str, tmp_path: Path) -> Iterator[Other]:
    other = Other(migrated_postgres_url, tmp_path / "elsewhere")
    yield other
    other.database.dispose()


@pytest.fixture
def archive(server: Instance, tmp_path: Path) -> Path:
    """A competition that was played to its reveal, in a file."""
    play(server)
    path = tmp_path / "digits.zip"
    write(server.database, server.storage, get_settings(), slug="digits", path=path)
    return path
