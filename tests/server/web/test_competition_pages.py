"""The list, the overview, and the states of a competition as people see them."""

from datetime import timedelta

import pytest

from lethe.competition.file import Limits, parse_competition
from lethe.competition.visibility import Visibility
from server.competitions import service as competitions
from server.datetime_format import in_words
from server.db import now
from server.models.account import Role
from server.models.competition import Competition, Split
from server.web.competition_pages import run_limit_s
from server.web.page_cache import anonymous_pages
from tests.support.instance import Instance, competition_toml
from tests.support.web import Visitor, counted_queries, plain_text

BOARD = "/competitions/digits/leaderboard"


def test_an_empty_server_says_so(visitor: Visitor) -> None:
    assert "No competitions yet" in visitor.get("/").text


def test_the_list_shows_every_visible_competition(server: Instance, visitor: Visitor) -> None:
    server.competition("digits")
    server.competition("faces", state="draft")
    page = plain_text(visitor.get("/").text)
    assert "Forgetting digits" in page
    assert "Forgetting faces" not in page


def test_a_draft_is_not_found_by_others_and_seen_by_its_organiser(server: Instance, visitor: Visitor) -> None:
    olga = server.account("olga", Role.ORGANISER)
    server.competition("faces", organiser=olga, state="draft")
    assert visitor.get("/competitions/faces").status_code == 404
    visitor.log_in("olga")
    assert visitor.get("/competitions/faces").status_code == 200


def test_the_overview_tells_dates_limits_and_the_oracle(server: Instance, visitor: Visitor) -> None:
    competition = server.competition(limits={"submissions_per_day": 7})
    with server.database.write() as session:
        competitions.get_split(session, competition, Visibility.PUBLIC).oracle = {"final_score": 0.18765}
    page = plain_text(visitor.get("/competitions/digits").text)
    assert "7 a day" in page
    assert "0.18765" in page
    assert "Closes" in page


def test_the_private_oracle_is_not_on_the_overview(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    with server.database.write() as session:
        competitions.get_split(session, competition, Visibility.PRIVATE).oracle = {"final_score": 0.17171}
    for path in ("", "/leaderboard"):
        assert "0.17171" not in visitor.get(f"/competitions/digits{path}").text


def test_a_description_is_markdown_without_html(server: Instance, visitor: Visitor) -> None:
    server.competition(extra='description = "**bold** <script>alert(1)</script> [x](javascript:alert(1))"')
    page = visitor.get("/competitions/digits").text
    assert "<strong>bold</strong>" in page
    assert "<script>alert" not in page
    assert 'href="javascript' not in page


@pytest.mark.parametrize(
    ("state", "words"),
    [("open", "closes in"), ("closed", "Closed, re-scoring"), ("provisional", "results sealed"), ("final", "Final")],
)
def test_the_state_stands_in_words(server: Instance, visitor: Visitor, state: str, words: str) -> None:
    server.competition(state=state)
    assert words in plain_text(visitor.get("/competitions/digits").text)


@pytest.mark.parametrize(
    ("state", "words", "link"),
    [
        ("closed", "Submissions have ended", BOARD),
        ("final", "It is over", f"{BOARD}?board=private"),
        ("archived", "It ended without results", BOARD),
    ],
)
def test_after_the_end_the_overview_leads_to_the_boards(
    server: Instance, visitor: Visitor, state: str, words: str, link: str
) -> None:
    competition, closed_at = server.competition(state=state), now() - timedelta(hours=2)
    with server.database.write() as session:
        session.get_one(Competition, competition.id).closes_at = closed_at
    page = visitor.get("/competitions/digits").text
    assert words in plain_text(page)
    assert f'class="button button-main" href="{link}"' in page
    assert "Starter kit" not in page
    assert f"Closed {in_words(closed_at)}" in plain_text(page), "by hand, before the file's end"


def test_a_ready_competition_tells_when_it_opens(server: Instance, visitor: Visitor) -> None:
    server.competition(state="ready", opens_at=now() + timedelta(days=2), closes_at=now() + timedelta(days=9))
    assert "opens in" in plain_text(visitor.get("/competitions/digits").text)


def test_an_unknown_competition_is_a_page_of_its_own(visitor: Visitor) -> None:
    answer = visitor.get("/competitions/nope")
    assert answer.status_code == 404
    assert "No competition is called" in answer.text
    assert "<nav" in answer.text


def test_the_starter_file_has_the_entry_point(server: Instance, visitor: Visitor) -> None:
    server.competition()
    answer = visitor.get("/competitions/digits/starter.py")
    assert "def unlearning(net," in answer.text
    assert "attachment" in answer.headers["content-disposition"]


def test_list_runs_the_same_queries_for_any_competitions(server: Instance, visitor: Visitor) -> None:
    counts = []
    for number in range(6):
        server.competition(f"c{number}")
        if number in (0, 5):
            anonymous_pages.clear()
            with counted_queries(server.database.engine) as queries:
                visitor.get("/")
            counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("limits", "retraining_time_s", "shown"),
    [({"run_wall_time_s": 2.0}, 100.0, 2.0), ({}, 100.0, 20.0), ({}, None, None)],
)
def test_overview_shows_the_run_limit_that_is_enforced(
    limits: dict[str, float], retraining_time_s: float | None, shown: float | None
) -> None:
    file = parse_competition(competition_toml("digits")).model_copy(update={"limits": Limits.model_validate(limits)})
    assert run_limit_s(file, Split(retraining_time_s=retraining_time_s)) == shown
