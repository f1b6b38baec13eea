"""The list of a team's own submissions: its pages, its orders, and where an act leads back to."""

import re
from datetime import timedelta

import pytest

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.models.account import Account
from server.models.competition import Competition
from server.models.submission import Submission
from server.teams import teams
from server.web import submission_lists
from tests.support.instance import Instance
from tests.support.scores import add_score, add_submission
from tests.support.web import Visitor, counted_queries, plain_text

MINE = "/competitions/digits/submissions"
LINK = re.compile(r'rel="(prev|next)" href="([^"]+)"')


@pytest.fixture
def ada(server: Instance, visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> Visitor:
    """A participant who is logged in, on an instance whose lists have two lines a page."""
    monkeypatch.setattr(submission_lists, "LINES", 2)
    server.account("ada")
    visitor.log_in("ada")
    return visitor


def sent(server: Instance, *scores: float | None, message: str = "try") -> list[str]:
    """Put submissions of ada's team into the database, the first the oldest; None failed. Return their ids."""
    ids: list[str] = []
    with server.database.write() as session:
        competition = session.query(Competition).one()
        team = teams.ensure(session, competition, session.query(Account).filter_by(name="ada").one())
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        for number, score in enumerate(scores):
            received = now() - timedelta(hours=len(scores) - number)
            one = add_submission(session, team, received_at=received, stage="scored" if score is not None else "failed")
            one.message = f"{message}-{number}"
            if score is not None:
                add_score(session, one, public, score)
            ids.append(one.id)
    return ids


def listed(page: str) -> list[str]:
    """Return the notes of the lines of a page, from the top."""
    return re.findall(r'is-name"><a href="/submissions/\w+">([^<]+)</a>', page)


def links(page: str) -> dict[str, str]:
    return {rel: address.replace("&amp;", "&") for rel, address in LINK.findall(page)}


def test_what_waits_says_why_in_the_list_and_on_the_first_page(server: Instance, ada: Visitor) -> None:
    server.competition()
    with server.database.read() as session:
        account = session.query(Account).filter_by(name="ada").one()
        session.expunge(account)
    for _ in range(2):
        server.submit(server.headers(account))
    for page in (MINE, "/"):
        shown = plain_text(ada.get(page).text)
        assert shown.count("waits: no worker has been heard of in the last minute") == 1
        assert shown.count("waits: an earlier submission of your team is served first") == 1


def test_the_list_has_pages_that_keep_its_order(server: Instance, ada: Visitor) -> None:
    server.competition()
    assert "Nothing submitted yet" in ada.get(MINE).text
    *_, before, newest = sent(server, 0.1, None, 0.3, 0.2, 0.4)
    seen, address = [], MINE
    for _ in range(3):
        page = ada.get(address).text
        seen.append(listed(page))
        address = links(page).get("next", "")
    assert seen == [["try-4", "try-3"], ["try-2", "try-1"], ["try-0"]]
    assert links(page) == {"prev": f"{MINE}?page=2"}
    assert links(ada.get(f"{MINE}?page=2").text) == {"prev": MINE, "next": f"{MINE}?page=3"}
    assert "<title>My submissions, page 3 ·" in page
    page = ada.get(f"{MINE}?show=best").text
    assert listed(page) == ["try-4", "try-2"]
    assert "<title>My best submissions ·" in page
    assert links(page) == {"next": f"{MINE}?show=best&page=2"}
    assert listed(ada.get(f"{MINE}?show=best&page=2").text) == ["try-3", "try-0"]
    assert listed(ada.get(f"{MINE}?show=failed").text) == ["try-1"]
    beyond = ada.get(f"{MINE}?page=7").text
    assert "This page does not exist" in beyond
    assert f'<a href="{MINE}">Show all</a>' in beyond
    assert ada.get(f"{MINE}?show=none-such").status_code == 422
    compared = ada.get(f"{MINE}/compare").text
    assert re.findall(r'<option value="(\w+)" selected>', compared) == [newest, before]


def test_the_statements_do_not_grow_with_the_lines(server, ada, monkeypatch):
    monkeypatch.setattr(submission_lists, "LINES", 20)
    server.competition()
    counts: dict[str, list[int]] = {"": [], "?show=best": [], "?show=finals": [], "?show=failed": []}
    for more in (1, 12):
        sent(server, *[0.1] * more, *[None] * more)
        for query, found in counts.items():
            with counted_queries(server.database.engine) as queries:
                assert ada.get(f"{MINE}{query}").status_code == 200
            found.append(len(queries))
    assert all(few == many for few, many in counts.values()), counts


def test_a_final_is_chosen_and_taken_back_on_lists_and_its_page(server: Instance, ada: Visitor) -> None:
    server.competition(limits={"final_selections": 1})
    oldest, middle, *_, failed, disqualified = sent(server, 0.1, 0.2, 0.3, None, 0.05)
    with server.database.write() as session:
        session.get_one(Submission, disqualified).disqualified_at = now()
    page = ada.get(f"{MINE}?show=finals").text
    assert listed(page) == ["try-2"]
    assert "auto-selected" in page, "without a choice they are what would count"
    for one, is_offered in ((oldest, True), (failed, False), (disqualified, False)):
        assert ("Choose as final" in ada.get(f"/submissions/{one}").text) is is_offered
    address = f"{MINE}?page=3"
    assert f'action="/submissions/{oldest}/final?page=3"' in ada.get(address).text
    answer = ada.post(f"/submissions/{oldest}/final?page=3", {"selected": "true"}, page=address)
    assert answer.headers["location"] == address
    assert ">Choose<" not in ada.get(MINE).text, "one is chosen, on the other page, and no more may be"
    assert "Choose as final" not in ada.get(f"/submissions/{middle}").text
    assert listed(ada.get(f"{MINE}?show=finals").text) == ["try-0"]
    own = f"/submissions/{oldest}"
    assert "Deselect" in ada.get(own).text
    ada.post(f"{own}/final", {"selected": "false"}, page=own)
    assert "Choose as final" in ada.get(f"/submissions/{middle}").text
    with server.database.write() as session:
        session.get_one(Submission, failed).selected = True
    assert "Deselect" in ada.get(MINE).text, "a failed choice can be taken back"
    assert listed(ada.get(f"{MINE}?show=finals").text) == ["try-3", "try-2"]


def test_next_steps_are_told_while_there_are_some(server: Instance, ada: Visitor) -> None:
    server.competition()
    good, failed = sent(server, 0.1, None)
    assert "Submit again" in ada.get(f"/submissions/{failed}").text
    assert "Submit again" not in ada.get(f"/submissions/{good}").text
    for error, shown in (
        ({"message": "It broke.", "exception_type": "KeyError", "line": 12}, "exception: KeyError, line 12"),
        ({"message": "Details are withheld."}, "exception"),
    ):
        with server.database.write() as session:
            row = session.get_one(Submission, failed)
            row.fault, row.error_class, row.error = "participant", "exception", error
        assert f"Failed {shown} –" in plain_text(ada.get(MINE).text)
    with server.database.write() as session:
        session.query(Competition).one().closes_at = now()
    for one in (good, failed):
        page = ada.get(f"/submissions/{one}").text
        assert "Submit again" not in page
        assert "Choose as final" not in page
    for column, value, words in (
        ("state", "archived", "ended without results"),
        ("revealed_at", now(), "that decides the ranking"),
    ):
        with server.database.write() as session:
            setattr(session.query(Competition).one(), column, value)
        assert words in ada.get(MINE).text


def test_what_follows_a_page_is_of_the_same_page(server: Instance, ada: Visitor) -> None:
    server.competition()
    sent(server, 0.1, 0.2, 0.3)
    with server.database.write() as session:
        oldest = session.query(Submission).order_by(Submission.received_at).first()
        assert oldest
        oldest.stage = "queued"
    assert "Nothing has failed" in ada.get(f"{MINE}?show=failed").text
    assert "data-poll" not in ada.get(MINE).text, "nothing on this page will change"
    page = ada.get(f"{MINE}?page=2").text
    assert f'data-poll="{MINE}/rows?page=2"' in page
    assert f'hx-sse:connect="{MINE}/events?page=2"' in page
    assert "<title>My submissions, page 2 (1 in progress) ·" in page
    assert listed(ada.get(f"{MINE}/rows?page=2").text) == ["try-0"]
