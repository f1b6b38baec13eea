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
from server.models.competition import Competition, Split
from server.web.competition_pages import limit_of_a_run
from tests.support.instance import Instance, competition_toml
from tests.support.scores import add_team, scored
from tests.support.web import Visitor, plain_text

ROOT = Path(__file__).parents[3]


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


def test_sealed_scores_are_not_on_the_card_and_revealed_ones_are(server: Instance, visitor: Visitor) -> None:
    competition = server.competition(state="provisional")
    with server.database.write() as session:
        public, private = (competitions.get_split(session, competition, each) for each in Visibility)
        public.oracle = {"final_score": 0.2}
        for name, split, score in (("ada", public, 0.1), ("mary", public, 0.05), ("eve", private, 0.3)):
            scored(session, add_team(session, competition, name), split, score)
        scored(session, add_team(session, competition, "reference", is_baseline=True), public, 0.19)
    page = plain_text(visitor.get("/").text)
    assert "Best score 0.10000 50 % of the oracle" in page
    assert "2 teams" in page
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


def test_a_draft_is_its_organisers(server: Instance, visitor: Visitor) -> None:
    server.competition()
    server.organised("faces", state="draft")
    server.storage.write(starter_kit.picture_key("faces", "forget"), b"PNG")
    paths = ("/competitions/faces", "/competitions/faces/pictures/forget.png")
    for status in (404, 200):
        assert [visitor.get(path).status_code for path in paths] == [status] * 2
        page = plain_text(visitor.get("/").text)
        assert "Forgetting digits" in page
        assert ("Forgetting faces" in page) is (status == 200)
        visitor.log_in("olga")
    unknown = visitor.get("/competitions/nope")
    assert unknown.status_code == 404
    assert "No competition is called" in unknown.text
    assert "<nav" in unknown.text


def test_the_overview_tells_what_a_competition_is(server: Instance, visitor: Visitor) -> None:
    words = "**bold** <script>alert(1)</script> [x](javascript:alert(1))"
    competition = server.competition(limits={"submissions_per_day": 7}, extra=f'description = "{words}"')
    with server.database.write() as session:
        competitions.get_split(session, competition, Visibility.PUBLIC).oracle = {"final_score": 0.18765}
    page = visitor.get("/competitions/digits").text
    assert "<strong>bold</strong>" in page
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
    for shown in ("7 a day", "0.18765", "closes in"):
        assert shown in plain_text(page)
    server.competition("next", state="ready", opens_at=now() + timedelta(days=2), closes_at=now() + timedelta(days=9))
    assert "opens in" in plain_text(visitor.get("/competitions/next").text)
    answer = visitor.get("/competitions/digits/starter.py")
    assert answer.text == (ROOT / "examples/starter_kit/submission.py").read_text(encoding="utf-8")
    assert "attachment" in answer.headers["content-disposition"]


def test_after_the_end_the_overview_leads_to_the_boards(server: Instance, visitor: Visitor) -> None:
    ended = {
        "closed": ("Closed, re-scoring", "Submissions have ended", ""),
        "provisional": ("results sealed", "Submissions have ended", ""),
        "final": ("Final", "It is over", "?board=private"),
        "archived": ("", "It ended without results", ""),
    }
    closed_at = now() - timedelta(hours=2)
    for state, (in_words_of, words, query) in ended.items():
        competition = server.competition(state, state=state)
        with server.database.write() as session:
            session.get_one(Competition, competition.id).closes_at = closed_at
        page = visitor.get(f"/competitions/{state}").text
        assert f'class="button button-main" href="/competitions/{state}/leaderboard{query}"' in page
        for shown in (in_words_of, words, f"Closed {in_words(closed_at)}"):  # by hand, before the file's end
            assert shown in plain_text(page), (state, shown)
        assert "Starter kit" not in page


@pytest.mark.parametrize("state", ["draft", "preparing"])
def test_what_has_not_opened_is_neither_closing_nor_closed(server, visitor, olga, state):
    for hours in (-2, 2):
        opens_at, slug = now() + timedelta(hours=hours, minutes=1), f"in{hours + 2}"
        closes_at = now() + timedelta(days=31)
        server.competition(slug, organiser=olga, state=state, opens_at=opens_at, closes_at=closes_at)
    visitor.log_in("olga")
    for slug, soon in (("in0", False), ("in4", True)):
        page = plain_text(visitor.get(f"/competitions/{slug}").text)
        assert ("opens in 2 hours , once it is prepared" if soon else "not open yet") in page
        assert "closed" not in page.split(f"Forgetting {slug}")[0]
        assert "closes in" not in page.split(f"Forgetting {slug}")[0]
    card = plain_text(visitor.get("/").text)
    for words, is_there in (
        ("opens in 2 hours", True),
        ("not open yet", True),
        ("closed", False),
        ("closes in", False),
    ):
        assert (words in card) is is_there, words


@pytest.mark.parametrize(
    ("limits", "retraining_time_s", "shown"), [({"run_wall_time_s": 2.0}, 100.0, 2.0), ({}, 100.0, 20.0)]
)
def test_overview_shows_the_run_limit_that_is_enforced(limits, retraining_time_s, shown):
    file = parse_competition(competition_toml("digits")).model_copy(update={"limits": Limits.model_validate(limits)})
    limit = limit_of_a_run(file, Split(retraining_time_s=retraining_time_s))
    assert limit is not None
    assert limit.wall_time_s == shown
    assert limit_of_a_run(file, Split(retraining_time_s=None)) is None
