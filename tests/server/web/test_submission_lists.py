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


def test_the_list_has_pages_that_lead_to_one_another(server: Instance, ada: Visitor) -> None:
    server.competition()
    sent(server, 0.1, None, 0.3, 0.2, 0.4)
    seen, address = [], MINE
    for _ in range(3):
        page = ada.get(address).text
        seen.append(listed(page))
        address = links(page).get("next", "")
    assert seen == [["try-4", "try-3"], ["try-2", "try-1"], ["try-0"]]
    assert links(page) == {"prev": f"{MINE}?page=2"}
    assert links(ada.get(f"{MINE}?page=2").text) == {"prev": MINE, "next": f"{MINE}?page=3"}
    assert "<title>My submissions, page 3 ·" in page


def test_comparison_offers_the_two_newest(server: Instance, ada: Visitor) -> None:
    server.competition()
    older, newer = sent(server, 0.1, 0.2)
    page = ada.get(f"{MINE}/compare").text
    assert re.findall(r'<option value="(\w+)" selected>', page) == [newer, older]


def test_a_page_keeps_its_order(server: Instance, ada: Visitor) -> None:
    server.competition()
    sent(server, 0.1, None, 0.3, 0.2, 0.4)
    page = ada.get(f"{MINE}?show=best").text
    assert listed(page) == ["try-4", "try-2"]
    assert "<title>My best submissions ·" in page
    assert links(page) == {"next": f"{MINE}?show=best&page=2"}
    assert listed(ada.get(f"{MINE}?show=best&page=2").text) == ["try-3", "try-0"]
    assert listed(ada.get(f"{MINE}?show=failed").text) == ["try-1"]


def test_lists_without_a_line_say_so(server: Instance, ada: Visitor) -> None:
    server.competition()
    assert "Nothing submitted yet" in ada.get(MINE).text
    sent(server, 0.1)
    assert "Nothing has failed" in ada.get(f"{MINE}?show=failed").text
    beyond = ada.get(f"{MINE}?page=7").text
    assert "This page does not exist" in beyond
    assert f'<a href="{MINE}">Show all</a>' in beyond
    assert ada.get(f"{MINE}?show=none-such").status_code == 422


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


def test_selection_spans_pages_and_an_action_returns(server: Instance, ada: Visitor) -> None:
    server.competition(limits={"final_selections": 1})
    oldest, *_ = sent(server, 0.1, 0.2, 0.3)
    address = f"{MINE}?page=2"
    assert f'action="/submissions/{oldest}/final?page=2"' in ada.get(address).text
    answer = ada.post(f"/submissions/{oldest}/final?page=2", {"selected": "true"}, page=address)
    assert answer.headers["location"] == address
    assert ">Choose<" not in ada.get(MINE).text, "one is chosen, on the other page, and no more may be"
    assert listed(ada.get(f"{MINE}?show=finals").text) == ["try-0"]


def test_without_a_choice_the_finals_are_what_would_count(server: Instance, ada: Visitor) -> None:
    server.competition(limits={"final_selections": 1})
    sent(server, 0.1, 0.3, 0.2)
    page = ada.get(f"{MINE}?show=finals").text
    assert listed(page) == ["try-1"]
    assert "auto-selected" in page


def test_what_follows_a_page_is_of_the_same_page(server: Instance, ada: Visitor) -> None:
    server.competition()
    sent(server, 0.1, 0.2, 0.3)
    with server.database.write() as session:
        oldest = session.query(Submission).order_by(Submission.received_at).first()
        assert oldest
        oldest.stage = "queued"
    assert "data-poll" not in ada.get(MINE).text, "nothing on this page will change"
    page = ada.get(f"{MINE}?page=2").text
    assert f'data-poll="{MINE}/rows?page=2"' in page
    assert f'hx-sse:connect="{MINE}/events?page=2"' in page
    assert "<title>My submissions, page 2 (1 in progress) ·" in page
    assert listed(ada.get(f"{MINE}/rows?page=2").text) == ["try-0"]


def test_a_final_is_chosen_and_taken_back_on_its_own_page(server: Instance, ada: Visitor) -> None:
    server.competition(limits={"final_selections": 1})
    first, second, failed = sent(server, 0.1, 0.2, None)
    page = f"/submissions/{first}"
    assert "Choose as final" in ada.get(page).text
    assert "Choose as final" not in ada.get(f"/submissions/{failed}").text
    ada.post(f"{page}/final", {"selected": "true"}, page=page)
    assert "Deselect" in ada.get(page).text
    assert "Choose as final" not in ada.get(f"/submissions/{second}").text, "no more may be chosen"
    ada.post(f"{page}/final", {"selected": "false"}, page=page)
    assert "Choose as final" in ada.get(f"/submissions/{second}").text


def test_what_cannot_become_a_final_is_not_offered(server: Instance, ada: Visitor) -> None:
    server.competition(limits={"final_selections": 1})
    (disqualified,) = sent(server, 0.1)
    with server.database.write() as session:
        session.get_one(Submission, disqualified).disqualified_at = now()
    assert "Choose as final" not in ada.get(f"/submissions/{disqualified}").text
    assert "final-form" not in ada.get(MINE).text


def test_failed_choice_can_be_deselected_and_auto_choice_is_shown(server: Instance, ada: Visitor) -> None:
    server.competition(limits={"final_selections": 1})
    failed, _ = sent(server, None, 0.2)
    with server.database.write() as session:
        session.get_one(Submission, failed).selected = True
    assert "Deselect" in ada.get(MINE).text
    assert listed(ada.get(f"{MINE}?show=finals").text) == ["try-1", "try-0"]


def test_a_list_tells_of_results_only_where_there_are_some(server: Instance, ada: Visitor) -> None:
    server.competition()
    sent(server, 0.1)
    with server.database.write() as session:
        session.query(Competition).one().state = "archived"
    assert "ended without results" in ada.get(MINE).text
    with server.database.write() as session:
        session.query(Competition).one().revealed_at = now()
    assert "that decides the ranking" in ada.get(MINE).text


def test_failure_shows_the_next_step_while_there_is_one(server: Instance, ada: Visitor) -> None:
    server.competition()
    good, failed = sent(server, 0.1, None)
    assert "Submit again" in ada.get(f"/submissions/{failed}").text
    assert "Submit again" not in ada.get(f"/submissions/{good}").text
    with server.database.write() as session:
        session.query(Competition).one().closes_at = now()
    for one in (good, failed):
        page = ada.get(f"/submissions/{one}").text
        assert "Submit again" not in page
        assert "Choose as final" not in page


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ({"message": "It broke.", "exception_type": "KeyError", "line": 12}, "exception: KeyError, line 12"),
        ({"message": "Details are withheld."}, "exception"),
    ],
)
def test_failed_row_says_where_it_failed(server, visitor, error, shown):
    server.competition()
    ada = server.participant()
    server.submit(ada)
    with server.database.write() as session:
        submission = session.query(Submission).one()
        submission.stage, submission.fault, submission.error_class = "failed", "participant", "exception"
        submission.error = error
    visitor.log_in("ada")
    page = plain_text(visitor.get("/competitions/digits/submissions").text)
    assert f"Failed {shown} –" in page
