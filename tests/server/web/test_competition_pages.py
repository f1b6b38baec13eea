"""The list, the overview, and the states of a competition as people see them."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from lethe.competition.file import parse_competition
from lethe.competition.sections import Limits
from lethe.competition.visibility import Visibility
from server import starter_kit
from server.competitions import competitions
from server.datetime_format import in_words
from server.db import now
from server.leaderboard import boards
from server.models.account import Role
from server.models.competition import Competition, Split
from server.web.competition_pages import limit_of_a_run
from tests.support.instance import Instance, competition_toml
from tests.support.scores import add_team, scored
from tests.support.web import Visitor, counted_queries, plain_text

ROOT = Path(__file__).parents[3]
BOARD = "/competitions/digits/leaderboard"


def test_the_list_shows_every_visible_competition(server: Instance, visitor: Visitor) -> None:
    server.competition("digits")
    server.competition("faces", state="draft")
    page = plain_text(visitor.get("/").text)
    assert "Forgetting digits" in page
    assert "Forgetting faces" not in page


@pytest.mark.parametrize("is_due", [True, False])
def test_list_names_what_is_prepared_once_it_is_due(server: Instance, visitor: Visitor, *, is_due: bool) -> None:
    opens_at = now() - timedelta(days=1) if is_due else now() + timedelta(days=1)
    competition = server.competition("faces", state="preparing", opens_at=opens_at, closes_at=now() + timedelta(days=2))
    with server.database.write() as session:
        for split in session.scalars(select(Split).where(Split.competition_id == competition.id)):
            split.state, split.stage, split.progress = "preparing", "oracle", 0.5
    page = plain_text(visitor.get("/").text)
    assert "1 competition in preparation" in page
    assert "70 % done" in page
    assert ("Forgetting faces" in page) is is_due
    assert "No competitions yet" not in page


def test_the_list_is_grouped_by_what_one_can_do(server: Instance, visitor: Visitor) -> None:
    later = {"opens_at": now() + timedelta(days=1), "closes_at": now() + timedelta(days=2)}
    over = {"opens_at": now() - timedelta(days=2), "closes_at": now() - timedelta(days=1)}
    server.competition("late", closes_at=now() + timedelta(days=9))
    server.competition("soon", closes_at=now() + timedelta(days=2))
    server.competition("next", state="ready", **later)
    server.competition("judged", state="provisional", **over)
    server.competition("done", state="archived", **over)
    page = plain_text(visitor.get("/").text)
    order = ["Open ", "Forgetting soon", "Forgetting late", "Opening soon", "Forgetting next"]
    order += ["Closed, being decided", "Forgetting judged", "Finished", "Forgetting done"]
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    assert "Not public yet" not in page


def test_a_card_tells_teams_and_the_best_share_of_retraining(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    with server.database.write() as session:
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        split.oracle = {"final_score": 0.2}
        scored(session, add_team(session, competition, "ada"), split, 0.1)
        scored(session, add_team(session, competition, "mary"), split, 0.05)
        scored(session, add_team(session, competition, "reference", is_baseline=True), split, 0.19)
    page = plain_text(visitor.get("/").text)
    assert "Best score 0.10000 50 % of the oracle" in page
    assert "2 teams" in page


def test_sealed_scores_are_not_on_the_card_and_revealed_ones_are(server: Instance, visitor: Visitor) -> None:
    competition = server.competition(state="provisional")
    with server.database.write() as session:
        for visibility, score in ((Visibility.PUBLIC, 0.1), (Visibility.PRIVATE, 0.3)):
            split = competitions.get_split(session, competition, visibility)
            name = f"best-{visibility.value}"
            scored(session, add_team(session, competition, name), split, score)
    page = plain_text(visitor.get("/").text)
    assert "Best score 0.10000" in page
    assert "0.30000" not in page
    with server.database.write() as session:
        competitions.get(session, "digits", account=None).state = "final"
    boards._kept.clear()
    assert "Winning score 0.30000" in plain_text(visitor.get("/").text)


def test_members_see_what_runs_and_what_ends_next(server: Instance, visitor: Visitor) -> None:
    server.competition("digits", closes_at=now() + timedelta(days=3))
    server.competition("faces", closes_at=now() + timedelta(days=1))
    server.competition("sooner", closes_at=now() + timedelta(hours=1))  # ada is not in it
    ada, mary = server.participant("ada"), server.participant("mary")
    for slug, headers, message in (("digits", ada, "mine"), ("faces", ada, "done"), ("digits", mary, "hers")):
        assert server.submit(headers, slug=slug, message=message).status_code == 201
        if message == "done":
            server.score(
                server.client.get(f"/api/v1/competitions/{slug}/submissions", headers=ada).json()[0]["id"], 0.1
            )
    visitor.log_in("ada")
    page = plain_text(visitor.get("/").text)
    assert "Ends next: Forgetting faces" in page
    yours = page[page.index("Your work") : page.index("Forgetting sooner")]
    assert "mine" in yours
    assert "done" not in yours
    assert "hers" not in yours


def test_pictures_of_the_sample_are_shown_once_there_are_some(server: Instance, visitor: Visitor) -> None:
    server.competition()
    assert "/pictures/" not in visitor.get("/competitions/digits").text
    assert visitor.get("/competitions/digits/pictures/forget.png").status_code == 404
    for name in starter_kit.PICTURED_SETS:
        server.storage.write(starter_kit.picture_key("digits", name), b"\x89PNG " + name.encode())
    starter_kit._has_pictures.clear()
    assert 'src="/competitions/digits/pictures/forget.png"' in visitor.get("/competitions/digits").text
    answer = visitor.get("/competitions/digits/pictures/retain.png")
    assert (answer.headers["content-type"], answer.content) == ("image/png", b"\x89PNG retain")
    assert visitor.get("/competitions/digits/pictures/test.png").status_code == 404


def test_pictures_of_a_draft_are_its_organisers(server: Instance, visitor: Visitor) -> None:
    server.competition(state="draft")
    server.storage.write(starter_kit.picture_key("digits", "forget"), b"PNG")
    assert visitor.get("/competitions/digits/pictures/forget.png").status_code == 404


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
def test_after_the_end_the_overview_leads_to_the_boards(server, visitor, state, words, link):
    competition, closed_at = server.competition(state=state), now() - timedelta(hours=2)
    with server.database.write() as session:
        session.get_one(Competition, competition.id).closes_at = closed_at
    page = visitor.get("/competitions/digits").text
    assert words in plain_text(page)
    assert f'class="button button-main" href="{link}"' in page
    assert "Starter kit" not in page
    assert f"Closed {in_words(closed_at)}" in plain_text(page), "by hand, before the file's end"


@pytest.mark.parametrize("state", ["draft", "preparing"])
@pytest.mark.parametrize("hours", [-2, 2])
def test_what_has_not_opened_is_neither_closing_nor_closed(server, visitor, *, state, hours):
    olga = server.account("olga", Role.ORGANISER)
    opens_at = now() + timedelta(hours=hours, minutes=1)
    server.competition(organiser=olga, state=state, opens_at=opens_at, closes_at=now() + timedelta(days=31))
    visitor.log_in("olga")
    soon = hours > 0
    page = plain_text(visitor.get("/competitions/digits").text)
    assert ("opens in 2 hours , once it is prepared" if soon else "not open yet") in page
    card = plain_text(visitor.get("/").text)
    assert ("opens in 2 hours" if soon else "not open yet") in card
    for text in (page.split("Forgetting digits")[0], card):
        assert "closed" not in text
        assert "closes in" not in text


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
    assert answer.text == (ROOT / "examples/starter_kit/submission.py").read_text(encoding="utf-8")
    assert "attachment" in answer.headers["content-disposition"]


def test_list_runs_the_same_queries_for_any_competitions(server: Instance, visitor: Visitor) -> None:
    counts = []
    for number in range(6):
        server.competition(f"c{number}")
        if number in (0, 5):
            boards._kept.clear()
            with counted_queries(server.database.engine) as queries:
                visitor.get("/")
            counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("limits", "retraining_time_s", "shown"), [({"run_wall_time_s": 2.0}, 100.0, 2.0), ({}, 100.0, 20.0)]
)
def test_overview_shows_the_run_limit_that_is_enforced(limits, retraining_time_s, shown):
    file = parse_competition(competition_toml("digits")).model_copy(update={"limits": Limits.model_validate(limits)})
    limit = limit_of_a_run(file, Split(retraining_time_s=retraining_time_s))
    assert limit is not None
    assert limit.wall_time_s == shown
    assert limit_of_a_run(file, Split(retraining_time_s=None)) is None
