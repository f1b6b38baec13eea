"""Seeds of the splits are kept while a copy of the competition could still be won with them."""

from datetime import timedelta

import pytest

from lethe.client.bundle import COMPETITION, read
from server.db import now
from server.models.account import Role
from server.models.competition import CompetitionState
from tests.support.bundles import fetch_bundle

SEED = 2**80 + 1


@pytest.mark.parametrize(
    ("state", "seed", "published"),
    [
        (CompetitionState.OPEN, SEED, False),
        (CompetitionState.CLOSED, SEED, False),
        (CompetitionState.FINAL, SEED, True),
        (CompetitionState.OPEN, SEED + 1, True),
    ],
)
def test_seeds_are_kept_while_another_competition_has_them(server, tmp_path, state, seed, *, published):
    over = now() - timedelta(hours=1)
    owner = server.account("olga", Role.ORGANISER)
    mine = f"[splits]\nseed = {SEED}"
    server.competition("first", organiser=owner, state=CompetitionState.FINAL, closes_at=over, extra=mine)
    closes_at = None if state == CompetitionState.OPEN else over
    server.competition("copy", state=state, closes_at=closes_at, extra=f"[splits]\nseed = {seed}")
    splits = read(fetch_bundle(server, "first", server.headers(owner), tmp_path), COMPETITION)["splits"]
    assert ("seed" in splits) is published
