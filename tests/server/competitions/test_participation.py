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
from server.models.notification import QueuedEmail
from server.models.participation import AdmissionLink, AdmittedAddress, Participant
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


def cast(server: Instance, extra: str) -> Cast:
    """Make a competition in which `admitted` was let in, `refused` was refused, and `asked` waits where one may ask."""
    olga = server.organised(extra=extra)
    server.storage.write(kit_key("digits"), b"kit")
    for name in ("forget", "retain"):
        server.storage.write(picture_key("digits", name), b"png")
    headers = {name: server.participant(name) for name in ("stranger", "asked", "refused", "admitted", "guide")}
    headers |= {"anonymous": {}, "organiser": olga, "organiser elsewhere": server.organiser("oskar")}
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
        (door, role)
        for door, enter in DOORS.items()
        for role in ROLES
        if enter(server, actors, actors.headers[role]).status_code < 300
    }
    # Who has submitted is in a team then: the last two doors are tried by somebody fresh below.
    assert passed == {(door, role) for door in ("the kit", "submitting") for role in LET_IN}
    if extra == APPROVED:
        body = {"decision": "admit", "reason": "a rule"}
        fresh = server.participant("fresh")
        server.client.post(f"{C}/participants/fresh/decision", headers=actors.headers["organiser"], json=body)
        assert DOORS["a team's link"](server, actors, fresh).status_code == 200


def test_a_private_competition_is_seen_by_its_participants_alone(server: Instance) -> None:
    actors = cast(server, PRIVATE)
    paths = (C, f"{C}/leaderboard", f"{C}/announcements", f"{C}/terms", f"{C}/quota", f"{C}/participation")
    for role in ROLES:
        headers = actors.headers[role]
        answers = {server.client.get(path, headers=headers).status_code for path in paths}
        listed = [row["slug"] for row in server.client.get("/api/v1/competitions", headers=headers).json()]
        if role in LET_IN:
            assert (answers, listed) == ({200}, ["digits"]), role
        else:
            assert (answers <= {401, 404}, listed) == (True, []), role
    pages = ("", "/leaderboard", "/leaderboard/charts", "/pictures/forget.png", "/starter.py", "/starter-kit.zip")
    for name, status in (("", 404), ("stranger", 404), ("admitted", 200)):
        visitor = Visitor(server, name)
        assert {visitor.get(f"/competitions/digits{page}").status_code for page in pages} == {status}
        assert ("digits" in visitor.get("/").text) is (status == 200)


def test_who_is_removed_later_neither_submits_nor_chooses(server: Instance) -> None:
    olga, ada = server.organised(), server.participant("ada")
    submission = server.submit(ada).json()["id"]
    server.score(submission, 0.1)
    body = {"decision": "refuse", "reason": "two accounts"}
    server.client.post(f"{C}/participants/ada/decision", headers=olga, json=body)
    again = server.submit(ada)
    assert (again.status_code, "two accounts" in again.json()["detail"]) == (403, True)
    assert server.client.put(f"/api/v1/submissions/{submission}/selection", headers=ada).status_code == 403


def test_a_link_admits_as_many_as_it_says_until_it_ends(server: Instance) -> None:
    actors = cast(server, PRIVATE)
    organiser = actors.headers["organiser"]
    server.competition("other", extra=INVITED)

    def link(uses: int) -> dict[str, Any]:
        return dict(server.client.post(f"{C}/links", headers=organiser, json={"uses": uses}).json())

    def join(headers: dict[str, str], made: dict[str, Any], slug: str = "digits") -> Any:
        path = f"/api/v1/competitions/{slug}/participation/join"
        return server.client.post(path, headers=headers, json={"token": made["token"]})

    made = link(1)
    first, second = server.participant("first"), server.participant("second")
    assert join(second, made, "other").status_code == 404, "it opens no other competition"
    assert join(actors.headers["refused"], made).status_code == 403
    assert join(first, made).json()["state"] == "admitted"
    assert join(second, made).status_code == 404
    assert server.submit(first).status_code == 201
    late, gone = link(5), link(5)
    with server.database.write() as session:
        session.get_one(AdmissionLink, late["id"]).expires_at = now() - timedelta(seconds=1)
    assert server.client.delete(f"{C}/links/{gone['id']}", headers=organiser).status_code == 204
    assert [join(second, each).status_code for each in (late, gone)] == [404, 404]
    assert [row["id"] for row in server.client.get(f"{C}/links", headers=organiser).json()] == []


def test_an_address_admits_its_confirmed_owner_alone(server: Instance, mail: None) -> None:
    organiser = cast(server, INVITED).headers["organiser"]
    for written in (
        "Grace@Example.org ",
        "\ufeffgrace@example.org",
        "grace@example.org\u200b",
        "\u200eGrace@Example.org",
    ):
        answer = server.client.patch(f"{C}/addresses", headers=organiser, json={"add": [written]})
        assert answer.json() == ["grace@example.org"], "it is kept without what cannot be seen"
    grace = server.confirmed_account("grace", address="Grace@example.org")
    claims = server.account("claims")
    with server.database.write() as session:
        session.get_one(Account, claims.id).email = "grace@example.org"  # never confirmed
    assert server.submit(server.headers(claims)).status_code == 403
    assert server.submit(server.headers(grace)).status_code == 201
    with server.database.read() as session:
        assert list(session.scalars(select(QueuedEmail.address))) == ["grace@example.org"]


def test_approval_is_asked_decided_and_written(server: Instance, mail: None) -> None:
    owner, ada = server.confirmed_account("olga", Role.ORGANISER), server.confirmed_account("ada")
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
    olga = server.organised(extra=TERMS)
    server.storage.write(kit_key("digits"), b"kit")
    ada = server.participant("ada")
    accept = f"{C}/participation/terms"
    assert server.submit(ada).status_code == server.client.get(f"{C}/starter-kit", headers=ada).status_code == 403
    assert server.client.get(f"{C}/starter-kit").status_code == 401
    assert server.client.post(accept, headers=ada, json={"version": 2}).status_code == 422
    assert server.client.post(accept, headers=ada, json={"version": 1}).json()["may_take_part"]
    assert server.submit(ada).status_code == 201
    body = {"participation": {"terms": "Be fair, and kind."}, "reason": "kinder"}
    assert server.client.patch(C, headers=olga, json=body).status_code == 200
    refused = server.submit(ada)
    assert refused.status_code == 403
    assert "version 2" in refused.json()["detail"]
    assert server.client.get(f"{C}/terms", headers=ada).json() == {"version": 2, "text": "Be fair, and kind."}
    server.client.post(accept, headers=ada, json={"version": 2})
    assert server.submit(ada).status_code == 201
    exported = server.client.get(f"{C}/exports/terms?format=jsonl", headers=olga).text.splitlines()
    rows = [json.loads(line) for line in exported]
    assert [(row["account"], row["version"]) for row in rows] == [("ada", 1), ("ada", 2)]


def test_one_mailbox_takes_part_once(server: Instance, mail: None) -> None:
    server.competition(extra="[participation]\nconfirmed_email = true")
    unconfirmed = server.participant("unconfirmed")
    assert server.submit(unconfirmed).status_code == 403
    ada = server.headers(server.confirmed_account("ada"))
    twin = server.headers(server.confirmed_account("twin", address="Ada+2@example.org"))
    other = server.headers(server.confirmed_account("other", address="ad_@example.org"))
    assert server.submit(ada).status_code == 201
    refused = server.submit(twin)
    assert (refused.status_code, "one account" in refused.json()["detail"]) == (403, True)
    assert [server.submit(who).status_code for who in (other, ada)] == [201, 201]


def test_who_is_in_a_team_stays_when_the_door_closes(server: Instance) -> None:
    olga = server.organised()
    ada, late = server.participant("ada"), server.participant("late")
    server.submit(ada)
    body = {"participation": {"admission": "invited", "private": True}, "reason": "closed circle"}
    server.client.patch(C, headers=olga, json=body)
    assert server.submit(ada).status_code == 201
    assert server.submit(late).status_code == 404


def test_pages_lead_from_a_link_to_a_submission(server: Instance) -> None:
    server.organised(extra=f'{PRIVATE}\nterms = "Be fair."')
    visitor = Visitor(server, "olga")
    made = visitor.post("/organise/digits/participants", {"act": "link", "uses": "3", "label": "lab"})
    link = re.search(r"/competitions/digits/join\?token=[0-9a-f]+", made.text)
    assert link
    server.account("ada")
    visitor = Visitor(server, "ada")
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
    server.organised(extra=APPROVED)
    server.account("ada")
    visitor = Visitor(server, "ada")
    asked = visitor.post(
        "/competitions/digits/participation", {"act": "ask", "message": "hello"}, page="/competitions/digits/join"
    )
    assert asked.status_code == 303
    visitor = Visitor(server, "olga")
    page = "/organise/digits/participants"
    assert "hello" in visitor.get(f"{page}?state=asked").text
    assert visitor.post(page, {"act": "admit", "name": "ada"}).status_code == 303
    rules = {"admission": "open", "terms": "Be fair.", "reason": "simpler"}
    assert visitor.post(f"{page}/rules", rules, page=page).status_code == 303
    assert "version 1" in visitor.get(page).text


def test_a_deleted_account_leaves_no_message_and_no_address(server: Instance, mail: None) -> None:
    olga, ada = server.organised(extra=APPROVED), server.confirmed_account("ada", address="Ada@example.org")
    server.client.patch(f"{C}/addresses", headers=olga, json={"add": ["bob@example.org"]})
    server.client.post(f"{C}/participation/request", headers=server.headers(ada), json={"message": "I am Ada"})
    server.client.patch(f"{C}/addresses", headers=olga, json={"add": ["ada@example.org"]})
    gone = server.client.post("/api/v1/me/deletion", headers=server.headers(ada), json={"password": PASSWORD})
    assert gone.status_code == 204
    with server.database.read() as session:
        assert list(session.scalars(select(Participant.message))) == [""]
        assert list(session.scalars(select(AdmittedAddress.address))) == ["bob@example.org"]
