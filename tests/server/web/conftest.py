"""A person's browser on an instance."""

import pytest

from server.web.page_cache import anonymous_pages
from tests.support.instance import Instance
from tests.support.web import Visitor


@pytest.fixture
def visitor(server: Instance) -> Visitor:
    return Visitor(server)


@pytest.fixture(autouse=True)
def _no_kept_pages() -> None:
    """What one test's instance showed is nothing to the next one's."""
    anonymous_pages.clear()
