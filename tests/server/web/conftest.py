"""A person's browser on an instance."""

import pytest

from server.models.account import Role
from server.models.competition import Competition
from tests.support.instance import Instance
from tests.support.web import Visitor


@pytest.fixture
def digits(server: Instance, visitor: Visitor) -> Competition:
    """A competition whose organiser is logged in."""
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=olga)
    visitor.log_in("olga")
    return competition
