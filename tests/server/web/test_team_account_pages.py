"""The team page and the account page."""

import re
from datetime import timedelta

from lethe.competition.visibility import Visibility
from server.accounts import accounts, rate_limit
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


def test_a_team_is_made_and_renamed(server: Instance, visitor: Visitor) -> None:
    server.competition()
    server.account("ada")
    visitor.log_in("ada")
    visitor.post(TEAM, {"name": "The Forgetters"})
    visitor.post(TEAM, {"name": "Amnesia"})
    page = plain_text(visitor.get(TEAM).text)
    assert "Amnesia" in page
    assert "ada (you)" in page


def test_a_taken_name_is_explained(server: Instance, visitor: Visitor) -> None:
    server.competition()
    for name in ("ada", "bob"):
        server.account(name)
        switch(visitor, name)
        answer = visitor.post(TEAM, {"name": "Amnesia"})
    assert answer.status_code == 409
    assert "There is a team called" in answer.text


def test_a_link_brings_in_one_person_who_agrees(server: Instance, visitor: Visitor) -> None:
    server.competition()
    for name in ("ada", "bob", "eve"):
        server.account(name)
    visitor.log_in("ada")
    visitor.post(TEAM, {"name": "Amnesia"})
    page = visitor.post(f"{TEAM}/invite", {"name": ""}, page=TEAM).text
    found = re.search(r"join\?token=([\w-]+)", page)
    assert found
    switch(visitor, "bob")
    assert "You are invited" in visitor.get(f"{TEAM}/join", params={"token": found[1]}).text
    assert "No team yet" in visitor.get(TEAM).text, "looking at the link changes nothing"
    assert act(visitor, "join", found[1]) == 303
    assert "Amnesia" in visitor.get(TEAM).text
    switch(visitor, "eve")
    assert act(visitor, "join", found[1]) == 404


def test_an_invitation_by_name_is_shown_and_declined(server: Instance, visitor: Visitor) -> None:
    server.competition()
    for name in ("ada", "bob"):
        server.account(name)
    visitor.log_in("ada")
    visitor.post(TEAM, {"name": "Amnesia"})
    visitor.post(f"{TEAM}/invite", {"name": "bob"}, page=TEAM)
    switch(visitor, "bob")
    page = visitor.get(TEAM).text
    assert "invites you" in page
    invitation = re.search(r'value="decline"><input type="hidden" name="subject" value="([^"]+)"', page)
    assert invitation
    assert act(visitor, "decline", invitation[1]) == 303
    assert "invites you" not in visitor.get(TEAM).text


def test_two_teams_become_one(server: Instance, visitor: Visitor) -> None:
    server.competition()
    for name in ("ada", "bob"):
        server.account(name)
        switch(visitor, name)
        visitor.post(TEAM, {"name": f"Team {name}"})
    assert act(visitor, "merge", "Team ada") == 303
    switch(visitor, "ada")
    page = visitor.get(TEAM).text
    request = re.search(r'value="agree"><input type="hidden" name="subject" value="([^"]+)"', page)
    assert request
    assert act(visitor, "agree", request[1]) == 303
    assert "bob" in plain_text(visitor.get(TEAM).text)


def test_a_merge_with_nobody_is_explained_on_the_page(server: Instance, visitor: Visitor) -> None:
    server.competition()
    server.account("ada")
    switch(visitor, "ada")
    visitor.post(TEAM, {"name": "Amnesia"})
    answer = visitor.post(f"{TEAM}/act", {"act": "merge", "subject": "Nobody"}, page=TEAM)
    assert answer.status_code == 404
    words = plain_text(answer.text)
    assert "There is no team called 'Nobody'" in words
    assert "Name of the other team" in words


def test_team_changes_are_not_offered_after_their_end(server: Instance, visitor: Visitor) -> None:
    competition = server.competition(extra=f"merge_deadline = {(now() - timedelta(hours=1)).isoformat()}")
    server.account("ada")
    switch(visitor, "ada")
    visitor.post(TEAM, {"name": "Amnesia"})
    before = visitor.get(TEAM).text
    assert "Leave the team" in before
    assert "Name of the other team" not in before
    with server.database.write() as session:
        team = teams.own_team(session, competition, accounts.find(session, "ada"))
        scored(session, team, competitions.get_split(session, competition, Visibility.PUBLIC), 0.1)
    assert "Leave the team" not in visitor.get(TEAM).text


def test_an_unknown_act_is_refused(server: Instance, visitor: Visitor) -> None:
    server.competition()
    server.account("ada")
    visitor.log_in("ada")
    assert act(visitor, "explode") == 422


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


def test_a_token_is_shown_once_and_works(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    answer = visitor.post("/account/tokens", {"label": "laptop", "days": "30"}, page="/account")
    found = re.search(r"lethe_[\w-]+", answer.text.split('id="token"')[1])
    assert found
    assert answer.headers["cache-control"] == "no-store"
    assert found[0] not in visitor.get("/account").text
    me = visitor.client.get("/api/v1/me", headers={"Authorization": f"Bearer {found[0]}"})
    assert me.json()["name"] == "ada"


def test_a_revoked_token_is_gone(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    visitor.post("/account/tokens", {"label": "laptop"}, page="/account")
    path = re.search(r"/account/tokens/\w+/revoke", visitor.get("/account").text)
    assert path
    visitor.post(path[0], page="/account")
    assert "laptop" not in visitor.get("/account").text


def test_changed_password_logs_out_only_other_browsers(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    other = visitor.client.cookies[SESSION_COOKIE]
    visitor.client.cookies.clear()
    visitor.log_in("ada")
    visitor.post("/account/password", {"old": PASSWORD, "new": "another good password"}, page="/account")
    assert visitor.get("/account").status_code == 200
    visitor.client.cookies.clear()
    visitor.client.cookies.set(SESSION_COOKIE, other)
    assert visitor.get("/account").status_code == 303


def test_a_wrong_present_password_is_named_beside_its_field(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    answer = visitor.post("/account/password", {"old": "wrong", "new": "another good password"}, page="/account")
    assert answer.status_code == 422
    assert "Current password is wrong" in plain_text(answer.text)


def test_guessing_the_current_password_is_rate_limited(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    forms = (
        ("/account/password", {"old": "a guess", "new": "a good new password"}),
        ("/account/mail", {"email": "ada@example.org", "password": "a guess"}),
        ("/account/delete", {"password": "a guess"}),
    )
    for place in range(rate_limit.per_account.limit):
        assert visitor.post(*forms[place % 3], page="/account").status_code == 422
    for path, values in forms:
        right = {key: PASSWORD if value == "a guess" else value for key, value in values.items()}
        answer = visitor.post(path, right, page="/account")
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) > 0
        assert "10 wrong passwords within 15 min" in plain_text(answer.text)
    headers = server.headers(server.account("bob"))
    assert server.client.post("/api/v1/me/deletion", headers=headers, json={"password": PASSWORD}).status_code == 204


def test_a_right_password_makes_wrong_ones_forgotten(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    for password in (*["a guess"] * (rate_limit.per_account.limit - 1), PASSWORD, "a guess", PASSWORD):
        answer = visitor.post("/account/mail", {"email": "", "password": password}, page="/account")
    assert answer.status_code == 303
