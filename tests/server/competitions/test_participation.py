"""Who takes part: every door of a competition, tried by everybody who should not pass it."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from server.db import now
from server.models.account import Account, Role
from server.models.competition import CompetitionState
from server.models.notification import QueuedEmail
from server.models.participation import AdmissionLink, AdmittedAddress, CompetitionText, Participant
from server.starter_kit import kit_key, picture_key
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor

C = "/api/v1/competitions/digits"
INVITED = '[participation]\nadmission = "invited"'
PRIVATE = f"{INVITED}\nprivate = true"
APPROVED = '[participation]\nadmission = "approved"'
TERMS = '[participation]\nterms = "Be fair."'
ROLES = ("anonymous", "stranger", "asked", "refused", "admitted", "organiser elsewhere", "organiser")
LET_IN = ("admitted", "organiser")


@dataclass
class Cast:
    """The seven who try, each with the headers of their requests, and the token of a team that invites."""

    headers: dict[str, dict[str, str]]
    team_link: str


def confirmed(server: Instance, account: Account, address: str) -> None:
    with server.database.write() as session:
        found = session.get_one(Account, account.id)
        found.email, found.email_confirmed_at = address, now()


def cast(server: Instance, extra: str) -> Cast:
    """Make a competition in which `admitted` was let in, `refused` was refused, and `asked` waits where one may ask."""
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=extra)
    server.storage.write(kit_key("digits"), b"kit")
    for name in ("forget", "retain"):
        server.storage.write(picture_key("digits", name), b"png")
    headers = {name: server.participant(name) for name in ("stranger", "asked", "refused", "admitted", "guide")}
    headers |= {"anonymous": {}, "organiser": server.headers(owner), "organiser elsewhere": server.organiser("oskar")}
    server.client.post(f"{C}/participation/request", headers=headers["asked"], json={})
    for name, decision in (("admitted", "admit"), ("guide", "admit"), ("refused", "refuse")):
        body = {"decision": decision, "reason": "a rule"}
        answer = server.client.post(f"{C}/participants/{name}/decision", headers=headers["organiser"], json=body)
        assert answer.status_code == 204, answer.text
    assert server.client.post(f"{C}/teams", headers=headers["guide"], json={"name": "Guides"}).status_code == 201
    made = server.client.post(f"{C}/team/invitations", headers=headers["guide"], json={})
    return Cast(headers, made.json()["token"])


Door = Callable[[Instance, Cast, dict[str, str]], Any]
DOORS: dict[str, Door] = {
    "the kit": lambda server, _, who: server.client.get(f"{C}/starter-kit", headers=who),
    "submitting": lambda server, _, who: server.submit(who),
    "a team of one's own": lambda server, _, who: server.client.post(f"{C}/teams", headers=who, json={"name": "New"}),
    "a team's link": lambda server, cast, who: server.client.post(
        f"{C}/team/join", headers=who, json={"token": cast.team_link}
    ),
}


@pytest.mark.parametrize("extra", [INVITED, APPROVED, PRIVATE], ids=["invited", "approved", "private"])
def test_each_door_lets_in_who_is_admitted_alone(server: Instance, extra: str) -> None:
    actors = cast(server, extra)
    passed = {
        (door, role): enter(server, actors, actors.headers[role]).status_code < 300
        for door, enter in DOORS.items()
        for role in ROLES
    }
    # Who has submitted is in a team then: the last two doors are tried by others below.
    assert {role for (door, role), is_in in passed.items() if door in ("the kit", "submitting") and is_in} == set(
        LET_IN
    )
    turned_away = [role for role in ROLES if role not in LET_IN]
    assert not any(passed[door, role] for door in DOORS for role in turned_away)


def test_an_admitted_person_makes_and_joins_teams(server: Instance) -> None:
    actors = cast(server, APPROVED)
    assert DOORS["a team's link"](server, actors, actors.headers["admitted"]).status_code == 200


@pytest.mark.parametrize("role", ROLES)
def test_a_private_competition_is_seen_by_its_participants_alone(server: Instance, role: str) -> None:
    headers = cast(server, PRIVATE).headers[role]
    paths = (C, f"{C}/leaderboard", f"{C}/announcements", f"{C}/terms", f"{C}/quota", f"{C}/participation")
    answers = {path: server.client.get(path, headers=headers).status_code for path in paths}
    listed = [row["slug"] for row in server.client.get("/api/v1/competitions", headers=headers).json()]
    if role in LET_IN:
        assert set(answers.values()) == {200}
        assert listed == ["digits"]
    else:
        assert set(answers.values()) <= {401, 404}
        assert listed == []


def test_private_pages_are_shown_to_participants_alone(server: Instance) -> None:
    cast(server, PRIVATE)
    pages = ("", "/leaderboard", "/leaderboard/charts", "/pictures/forget.png", "/starter.py", "/starter-kit.zip")
    visitor = Visitor(server)
    assert {visitor.get(f"/competitions/digits{page}").status_code for page in pages} == {404}
    visitor.log_in("stranger")
    assert {visitor.get(f"/competitions/digits{page}").status_code for page in pages} == {404}
    assert "digits" not in visitor.get("/").text
    visitor = Visitor(server)
    visitor.log_in("admitted")
    assert {visitor.get(f"/competitions/digits{page}").status_code for page in pages} == {200}


def test_who_is_removed_later_neither_submits_nor_chooses(server: Instance) -> None:
    actors = cast(server, APPROVED)
    submission = server.submit(actors.headers["admitted"]).json()["id"]
    server.score(submission, 0.1)
    body = {"decision": "refuse", "reason": "two accounts"}
    server.client.post(f"{C}/participants/admitted/decision", headers=actors.headers["organiser"], json=body)
    again = server.submit(actors.headers["admitted"])
    assert again.status_code == 403
    assert "two accounts" in again.json()["detail"]
    chosen = server.client.put(f"/api/v1/submissions/{submission}/selection", headers=actors.headers["admitted"])
    assert chosen.status_code == 403


def test_removal_works_in_an_open_competition_too(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    ada = server.participant("ada")
    body = {"decision": "refuse", "reason": "cheated"}
    server.client.post(f"{C}/participants/ada/decision", headers=server.headers(owner), json=body)
    assert server.submit(ada).status_code == 403


def test_a_link_admits_as_many_as_it_says_until_it_ends(server: Instance) -> None:
    organiser = cast(server, PRIVATE).headers["organiser"]
    made = server.client.post(f"{C}/links", headers=organiser, json={"uses": 1}).json()
    join = f"{C}/participation/join"
    first, second = server.participant("first"), server.participant("second")
    assert server.client.post(join, headers=first, json={"token": made["token"]}).json()["state"] == "admitted"
    assert server.client.post(join, headers=second, json={"token": made["token"]}).status_code == 404
    assert server.submit(first).status_code == 201
    late = server.client.post(f"{C}/links", headers=organiser, json={"uses": 5}).json()
    with server.database.write() as session:
        session.get_one(AdmissionLink, late["id"]).expires_at = now() - timedelta(seconds=1)
    assert server.client.post(join, headers=second, json={"token": late["token"]}).status_code == 404
    gone = server.client.post(f"{C}/links", headers=organiser, json={"uses": 5}).json()
    assert server.client.delete(f"{C}/links/{gone['id']}", headers=organiser).status_code == 204
    assert server.client.post(join, headers=second, json={"token": gone["token"]}).status_code == 404
    assert [row["id"] for row in server.client.get(f"{C}/links", headers=organiser).json()] == []


def test_a_link_of_one_competition_opens_no_other(server: Instance) -> None:
    organiser = cast(server, INVITED).headers["organiser"]
    server.competition("other", extra=INVITED)
    token = server.client.post(f"{C}/links", headers=organiser, json={}).json()["token"]
    answer = server.client.post(
        "/api/v1/competitions/other/participation/join", headers=server.participant("xenia"), json={"token": token}
    )
    assert answer.status_code == 404


def test_a_refused_person_does_not_come_by_a_link(server: Instance) -> None:
    actors = cast(server, INVITED)
    token = server.client.post(f"{C}/links", headers=actors.headers["organiser"], json={}).json()["token"]
    answer = server.client.post(f"{C}/participation/join", headers=actors.headers["refused"], json={"token": token})
    assert answer.status_code == 403
    assert server.submit(actors.headers["refused"]).status_code == 403


def test_an_address_admits_its_confirmed_owner_alone(server: Instance, mail: None) -> None:
    organiser = cast(server, INVITED).headers["organiser"]
    answer = server.client.patch(f"{C}/addresses", headers=organiser, json={"add": ["Grace@Example.org "]})
    assert answer.json() == ["grace@example.org"]
    grace = server.account("grace")
    claims = server.account("claims")
    with server.database.write() as session:
        session.get_one(Account, claims.id).email = "grace@example.org"  # never confirmed
    confirmed(server, grace, "Grace@example.org")
    assert server.submit(server.headers(claims)).status_code == 403
    assert server.submit(server.headers(grace)).status_code == 201
    with server.database.read() as session:
        assert list(session.scalars(select(QueuedEmail.address))) == ["grace@example.org"]


def test_approval_is_asked_decided_and_written(server: Instance, mail: None) -> None:
    owner, ada = server.account("olga", Role.ORGANISER), server.account("ada")
    confirmed(server, owner, "olga@example.org")
    confirmed(server, ada, "ada@example.org")
    server.competition(organiser=owner, extra=APPROVED)
    asks = server.headers(ada)
    message = {"message": "From Ulm"}
    assert server.client.post(f"{C}/participation/request", headers=asks, json=message).json()["state"] == "asked"
    assert server.client.post(f"{C}/participation/request", headers=asks, json=message).status_code == 409
    listed = server.client.get(f"{C}/participants?state=asked", headers=server.headers(owner)).json()
    assert [(row["name"], row["message"]) for row in listed["participants"]] == [("ada", "From Ulm")]
    decide = f"{C}/participants/ada/decision"
    without = server.client.post(decide, headers=server.headers(owner), json={"decision": "refuse"})
    assert without.status_code == 422
    server.client.post(decide, headers=server.headers(owner), json={"decision": "refuse", "reason": "a sponsor"})
    standing = server.client.get(f"{C}/participation", headers=asks).json()
    assert (standing["state"], standing["reason"]) == ("refused", "a sponsor")
    with server.database.read() as session:
        mails = {mail.address: mail.body for mail in session.scalars(select(QueuedEmail))}
    assert "From Ulm" in mails["olga@example.org"]
    assert "a sponsor" in mails["ada@example.org"]


def test_changed_terms_are_accepted_again_before_the_next_submission(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=TERMS)
    server.storage.write(kit_key("digits"), b"kit")
    ada = server.participant("ada")
    accept = f"{C}/participation/terms"
    assert server.submit(ada).status_code == server.client.get(f"{C}/starter-kit", headers=ada).status_code == 403
    assert server.client.get(f"{C}/starter-kit").status_code == 401
    assert server.client.post(accept, headers=ada, json={"version": 2}).status_code == 422
    assert server.client.post(accept, headers=ada, json={"version": 1}).json()["may_take_part"]
    assert server.submit(ada).status_code == 201
    body = {"participation": {"terms": "Be fair, and kind."}, "reason": "kinder"}
    assert server.client.patch(C, headers=server.headers(owner), json=body).status_code == 200
    refused = server.submit(ada)
    assert refused.status_code == 403
    assert "version 2" in refused.json()["detail"]
    assert server.client.get(f"{C}/terms", headers=ada).json() == {"version": 2, "text": "Be fair, and kind."}
    server.client.post(accept, headers=ada, json={"version": 2})
    assert server.submit(ada).status_code == 201
    exported = server.client.get(f"{C}/exports/terms?format=jsonl", headers=server.headers(owner)).text.splitlines()
    rows = [json.loads(line) for line in exported]
    assert [(row["account"], row["version"]) for row in rows] == [("ada", 1), ("ada", 2)]


def test_one_mailbox_takes_part_once(server: Instance, mail: None) -> None:
    server.competition(extra="[participation]\nconfirmed_email = true")
    ada, twin, other = server.account("ada"), server.account("twin"), server.account("other")
    assert server.submit(server.headers(ada)).status_code == 403
    confirmed(server, ada, "ada@example.org")
    confirmed(server, twin, "Ada+2@example.org")
    confirmed(server, other, "ad_@example.org")
    assert server.submit(server.headers(ada)).status_code == 201
    refused = server.submit(server.headers(twin))
    assert refused.status_code == 403
    assert "one account" in refused.json()["detail"]
    assert server.submit(server.headers(other)).status_code == 201
    assert server.submit(server.headers(ada)).status_code == 201


def test_who_is_in_a_team_stays_when_the_door_closes(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    ada, late = server.participant("ada"), server.participant("late")
    server.submit(ada)
    body = {"participation": {"admission": "invited", "private": True}, "reason": "closed circle"}
    server.client.patch(C, headers=server.headers(owner), json=body)
    assert server.submit(ada).status_code == 201
    assert server.submit(late).status_code == 404


def test_private_needs_an_invitation(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    body = {"participation": {"private": True}, "reason": "secret"}
    answer = server.client.patch(C, headers=server.headers(owner), json=body)
    assert answer.status_code == 422
    assert "private needs admission" in answer.text


def test_pages_lead_from_a_link_to_a_submission(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=f'{PRIVATE}\nterms = "Be fair."')
    visitor = Visitor(server)
    visitor.log_in("olga")
    made = visitor.post("/organise/digits/participants", {"act": "link", "uses": "3", "label": "lab"})
    link = re.search(r"/competitions/digits/join\?token=[0-9a-f]+", made.text)
    assert link
    server.account("ada")
    visitor = Visitor(server)
    visitor.log_in("ada")
    assert "It admits you" in visitor.get(link[0]).text
    token = link[0].partition("token=")[2]
    joined = visitor.post("/competitions/digits/join", {"token": token}, page=link[0])
    assert joined.headers["location"] == "/competitions/digits/join"
    assert "version 1" in visitor.get("/competitions/digits/submit").text
    accepted = visitor.post(
        "/competitions/digits/participation", {"act": "accept", "version": "1"}, page=joined.headers["location"]
    )
    assert accepted.headers["location"] == "/competitions/digits"
    assert "Choose a file" in visitor.get("/competitions/digits/submit").text


def test_pages_ask_and_decide(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=APPROVED)
    server.account("ada")
    visitor = Visitor(server)
    visitor.log_in("ada")
    asked = visitor.post(
        "/competitions/digits/participation", {"act": "ask", "message": "hello"}, page="/competitions/digits/join"
    )
    assert asked.status_code == 303
    visitor = Visitor(server)
    visitor.log_in("olga")
    page = "/organise/digits/participants"
    assert "hello" in visitor.get(f"{page}?state=asked").text
    assert visitor.post(page, {"act": "admit", "name": "ada"}).status_code == 303
    rules = {"admission": "open", "terms": "Be fair.", "reason": "simpler"}
    assert visitor.post(f"{page}/rules", rules, page=page).status_code == 303
    assert "version 1" in visitor.get(page).text


def test_a_deleted_draft_keeps_nothing_of_people_and_texts(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, state=CompetitionState.DRAFT, extra=f'{APPROVED}\nterms = "Be fair."')
    server.account("ada")
    server.client.post(f"{C}/participants/ada/decision", headers=server.headers(owner), json={"decision": "admit"})
    assert server.client.delete(C, headers=server.headers(owner)).status_code == 204
    with server.database.read() as session:
        assert session.scalars(select(Participant)).all() == []
        assert session.scalars(select(CompetitionText)).all() == []


def test_a_deleted_account_leaves_no_message_and_no_address(server: Instance, mail: None) -> None:
    owner, ada = server.account("olga", Role.ORGANISER), server.account("ada")
    confirmed(server, ada, "Ada@example.org")
    server.competition(organiser=owner, extra=APPROVED)
    server.client.patch(f"{C}/addresses", headers=server.headers(owner), json={"add": ["bob@example.org"]})
    server.client.post(f"{C}/participation/request", headers=server.headers(ada), json={"message": "I am Ada"})
    server.client.patch(f"{C}/addresses", headers=server.headers(owner), json={"add": ["ada@example.org"]})
    gone = server.client.post("/api/v1/me/deletion", headers=server.headers(ada), json={"password": PASSWORD})
    assert gone.status_code == 204
    with server.database.read() as session:
        assert list(session.scalars(select(Participant.message))) == [""]
        assert list(session.scalars(select(AdmittedAddress.address))) == ["bob@example.org"]


@pytest.mark.parametrize("written", ["\ufeffgrace@example.org", "grace@example.org\u200b", "\u200eGrace@Example.org"])
def test_address_is_kept_without_what_cannot_be_seen(server: Instance, mail: None, written: str) -> None:
    organiser = cast(server, INVITED).headers["organiser"]
    for _ in range(2):
        answer = server.client.patch(f"{C}/addresses", headers=organiser, json={"add": [written]})
        assert answer.json() == ["grace@example.org"]
