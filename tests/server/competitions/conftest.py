"""An instance that sends mail."""

from collections.abc import Iterator

import pytest

from server.config import get_settings
from tests.support.instance import Instance


@pytest.fixture
def mail(server: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the instance queue mails."""
    monkeypatch.setenv("LETHE_SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("LETHE_MAIL_FROM", "lethe@example.org")
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()
