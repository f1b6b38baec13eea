"""Published results: pages that ask no network for anything, and no seed before its time."""

import re
from datetime import timedelta

import pytest

from lethe.client.bundle import COMPETITION, read
from server.bundles.bundle import PAGES, environment
from server.db import now
from server.models.account import Role
from server.models.competition import CompetitionState
from tests.support.bundles import fetch_bundle


def test_pictures_of_other_hosts_are_links() -> None:
    html = environment().filters["markdown"]("A prize: ![a mug](https://example.org/mug.png)")
    assert '<a href="https://example.org/mug.png">a mug</a>' in html
    assert "<img" not in html


def wording(*, by: str, weights: dict[str, float], missing: str = "zero") -> str:
    """Return what the first page says of the tasks."""
    tasks = [{"name": name, "title": name.capitalize()} for name in ("faces", "digits", "authors")]
    about = {
        "title": "Three",
        "summary": "",
        "phases": [],
        "made_at": None,
        "opens_at": "2030-01-01T00:00:00+00:00",
        "closes_at": "2030-02-01T00:00:00+00:00",
        "combine": {"by": by, "weights": weights, "missing": missing},
    }
    data = {"tasks": tasks, "scores_verified": True, "lethe": "0.3"}
    template = environment().get_template("index.html")
    html = template.render(page="index.html", pages=PAGES, about=about, data=data, boards=[])
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


def test_combination_is_said_as_it_is() -> None:
    said = wording(by="mean", weights={})
    assert (
        "There are 3 tasks, and a submission was evaluated in those that it was sent to: Faces, Digits, Authors."
        in said
    )
    assert "combines them by their mean; a missing task counts as 0." in said
    said = wording(by="worst", weights={"faces": 2.5}, missing="unranked")
    assert "combines them by the worst of them, weighted: Faces 2.5, Digits 1, Authors 1; a missing task leaves" in said


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
