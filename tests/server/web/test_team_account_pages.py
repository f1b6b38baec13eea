"""The team page and the account page."""

import re
from datetime import timedelta

from lethe.competition.visibility import Visibility
from server.accounts import rate_limit
from server.competitions import competitions
from server.db import now
from server.notifications import outbox
from server.teams import teams
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import PASSWORD, Instance
from tests.support.scores import scored
from tests.support.web import Visitor, plain_text

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
