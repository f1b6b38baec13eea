"""A person's own pages: their team, their account, the list of their submissions."""

import re
from datetime import timedelta

import pytest

from lethe.competition.visibility import Visibility
from server.accounts import rate_limit
from server.competitions import competitions
from server.db import now
from server.models.account import Account
from server.models.competition import Competition
from server.models.submission import Submission
from server.notifications import outbox
from server.teams import teams
from server.web import submission_lists
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import PASSWORD, Instance
from tests.support.scores import add_score, add_submission, scored
from tests.support.web import Visitor, counted_queries, plain_text

TEAM = "/competitions/digits/team"


def switch(visitor: Visitor, name: str) -> None:
    visitor.client.cookies.clear()
    visitor.log_in(name)


def act(visitor: Visitor, name: str, subject: str = "") -> int:
    return visitor.post(f"{TEAM}/act", {"act": name, "subject": subject}, page=TEAM).status_code


def subject_of(visitor: Visitor, name: str) -> str:
    """Return what an act of the team's page is about."""
    shown = rf'value="{name}"><input type="hidden" name="subject" value="([^"]+)"'
    found = re.search(shown, visitor.get(TEAM).text)
    assert found
    return found[1]


def test_a_team_is_made_and_joined_by_a_link(server: Instance, visitor: Visitor) -> None:
    server.competition()
    for name in ("ada", "bob", "eve"):
        server.account(name)
    visitor.log_in("ada")
    for name in ("The Forgetters", "Amnesia"):
        visitor.post(TEAM, {"name": name})
    page = plain_text(visitor.get(TEAM).text)
    assert "Amnesia" in page
    assert "ada (you)" in page
    assert act(visitor, "explode") == 422
    page = visitor.post(f"{TEAM}/invite", {"name": ""}, page=TEAM).text
    found = re.search(r"join\?token=([\w-]+)", page)
    assert found
    switch(visitor, "bob")
    taken = visitor.post(TEAM, {"name": "Amnesia"})
    assert (taken.status_code, "There is a team called" in taken.text) == (409, True)
    assert "You are invited" in visitor.get(f"{TEAM}/join", params={"token": found[1]}).text
    assert "No team yet" in visitor.get(TEAM).text, "looking at the link changes nothing"
    assert act(visitor, "join", found[1]) == 303
    assert "Amnesia" in visitor.get(TEAM).text
    switch(visitor, "eve")
    assert act(visitor, "join", found[1]) == 404


def test_invitations_and_merges_are_shown_and_decided(server: Instance, visitor: Visitor) -> None:
    server.competition()
    for name in ("ada", "bob"):
        server.account(name)
    visitor.log_in("ada")
    visitor.post(TEAM, {"name": "Team ada"})
    visitor.post(f"{TEAM}/invite", {"name": "bob"}, page=TEAM)
    switch(visitor, "bob")
    assert "invites you" in visitor.get(TEAM).text
    assert act(visitor, "decline", subject_of(visitor, "decline")) == 303
    assert "invites you" not in visitor.get(TEAM).text
    visitor.post(TEAM, {"name": "Team bob"})
    answer = visitor.post(f"{TEAM}/act", {"act": "merge", "subject": "Nobody"}, page=TEAM)
    assert answer.status_code == 404
    for words in ("There is no team called 'Nobody'", "Name of the other team"):
        assert words in plain_text(answer.text)
    assert act(visitor, "merge", "Team ada") == 303
    switch(visitor, "ada")
    assert act(visitor, "agree", subject_of(visitor, "agree")) == 303
    assert "bob" in plain_text(visitor.get(TEAM).text)


def test_team_changes_are_not_offered_after_their_end(server: Instance, visitor: Visitor) -> None:
    competition = server.competition(extra=f"merge_deadline = {(now() - timedelta(hours=1)).isoformat()}")
    ada = server.account("ada")
    visitor.log_in("ada")
    visitor.post(TEAM, {"name": "Amnesia"})
    before = visitor.get(TEAM).text
    assert "Leave the team" in before
    assert "Name of the other team" not in before
    with server.database.write() as session:
        team = teams.own_team(session, competition, ada)
        scored(session, team, competitions.get_split(session, competition, Visibility.PUBLIC), 0.1)
    assert "Leave the team" not in visitor.get(TEAM).text


def test_mail_that_is_never_sent_is_not_promised(server, visitor, monkeypatch):
    promise, refusal = "links for a forgotten password go there", "this server sends no mail now"
    server.account("ada")
    for sends, said, unsaid in ((False, refusal, promise), (True, promise, refusal)):
        monkeypatch.setattr(outbox, "sends_mail", lambda sends=sends: sends)
        visitor.client.cookies.clear()
        pages = [visitor.get("/register").text]
        visitor.log_in("ada")
        pages.append(visitor.get("/account").text)
        for page in pages:
            assert said in page
            assert unsaid not in page


def test_a_token_is_shown_once_and_works_until_it_is_revoked(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    answer = visitor.post("/account/tokens", {"label": "laptop", "days": "30"}, page="/account")
    found = re.search(r"lethe_[\w-]+", answer.text.split('id="token"')[1])
    assert found
    assert answer.headers["cache-control"] == "no-store"
    page = visitor.get("/account").text
    assert found[0] not in page
    me = visitor.client.get("/api/v1/me", headers={"Authorization": f"Bearer {found[0]}"})
    assert me.json()["name"] == "ada"
    path = re.search(r"/account/tokens/\w+/revoke", page)
    assert path
    visitor.post(path[0], page="/account")
    assert "laptop" not in visitor.get("/account").text


def test_changed_password_logs_out_only_other_browsers(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    other = visitor.client.cookies[SESSION_COOKIE]
    switch(visitor, "ada")
    changed = {"old": "wrong", "new": "another good password"}
    wrong = visitor.post("/account/password", changed, page="/account")
    assert (wrong.status_code, "Current password is wrong" in plain_text(wrong.text)) == (422, True)
    visitor.post("/account/password", changed | {"old": PASSWORD}, page="/account")
    assert visitor.get("/account").status_code == 200
    visitor.client.cookies.clear()
    visitor.client.cookies.set(SESSION_COOKIE, other)
    assert visitor.get("/account").status_code == 303


def test_guessing_the_current_password_is_rate_limited(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    forms = (
        ("/account/password", {"old": "a guess", "new": "a good new password"}),
        ("/account/mail", {"email": "", "password": "a guess"}),
        ("/account/delete", {"password": "a guess"}),
    )
    most = rate_limit.per_account.limit
    for place in range(most - 1):
        assert visitor.post(*forms[place % 3], page="/account").status_code == 422
    right = [
        (path, {key: PASSWORD if word == "a guess" else word for key, word in form.items()}) for path, form in forms
    ]
    assert visitor.post(*right[1], page="/account").status_code == 303, "which makes wrong ones forgotten"
    for place in range(most):
        assert visitor.post(*forms[place % 3], page="/account").status_code == 422
    for form in right:
        answer = visitor.post(*form, page="/account")
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) > 0
        assert "10 wrong passwords within 15 min" in plain_text(answer.text)
    headers = server.headers(server.account("bob"))
    assert server.client.post("/api/v1/me/deletion", headers=headers, json={"password": PASSWORD}).status_code == 204


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
