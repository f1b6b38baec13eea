"""Teams over HTTP: their names, inviting, joining, leaving, handing over, merging."""

from datetime import timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import select, update

from server.db import now
from server.evaluations import leases
from server.models.account import Role
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Shard
from server.models.participation import Invitation
from server.models.submission import Submission
from tests.support.instance import Instance
from tests.support.team_requests import BASE, call, lead, link


def join(server: Instance, headers: dict[str, str], token: str) -> Any:
    return call(server, headers, "POST", "/team/join", token=token)


def merge(server: Instance, asking: dict[str, str], staying: dict[str, str], into: str) -> Any:
    asked = call(server, asking, "POST", "/team/merges", team=into)
    assert asked.status_code == 201, asked.text
    return call(server, staying, "POST", f"/team/merges/{asked.json()['id']}/agree")


def test_link_brings_in_one_person(both: Instance) -> None:
    both.competition()
    ada, bob, eve = lead(both, "ada", "Us"), both.participant("bob"), both.participant("eve")
    token = link(both, ada)
    joined = join(both, bob, token)
    assert joined.json()["members"] == ["ada", "bob"]
    assert join(both, eve, token).status_code == 404
    with both.database.read() as session:
        assert token not in str(vars(session.scalars(select(Invitation)).one()))


def test_member_sees_the_teams_submissions_and_shares_its_quota(server: Instance) -> None:
    server.competition(limits={"submissions_per_day": 1})
    ada, bob = lead(server, "ada", "Us"), server.participant("bob")
    join(server, bob, link(server, ada))
    submission = server.submit(ada).json()["id"]
    assert server.client.get(f"/api/v1/submissions/{submission}", headers=bob).status_code == 200
    assert server.submit(bob).status_code == 429


def test_invitation_by_name_is_for_that_person(both: Instance) -> None:
    both.competition()
    ada, bob, eve = lead(both, "ada", "Us"), both.participant("bob"), both.participant("eve")
    invitation = call(both, ada, "POST", "/team/invitations", name="BOB").json()
    assert invitation["token"] is None
    assert call(both, eve, "POST", f"/invitations/{invitation['id']}/accept").status_code == 404
    mine = call(both, bob, "GET", "/invitations").json()
    assert [row["team"] for row in mine] == ["Us"]
    assert call(both, bob, "POST", f"/invitations/{invitation['id']}/accept").json()["members"] == ["ada", "bob"]
    assert call(both, bob, "GET", "/invitations").json() == []


def test_declined_revoked_and_expired_invitations_are_over(server: Instance) -> None:
    server.competition()
    ada, bob = lead(server, "ada", "Us"), server.participant("bob")
    first = call(server, ada, "POST", "/team/invitations", name="bob").json()["id"]
    assert call(server, bob, "POST", f"/invitations/{first}/decline").status_code == 204
    assert call(server, bob, "POST", f"/invitations/{first}/accept").status_code == 404
    token = link(server, ada)
    open_ones = call(server, ada, "GET", "/team/invitations").json()
    assert call(server, ada, "DELETE", f"/team/invitations/{open_ones[0]['id']}").status_code == 204
    assert join(server, bob, token).status_code == 404
    late = link(server, ada)
    with server.database.write() as session:
        session.execute(update(Invitation).values(expires_at=now()))
    assert join(server, bob, late).status_code == 404


def test_team_is_limited_in_size(both: Instance) -> None:
    both.competition(limits={"team_size": 2})
    ada, them = lead(both, "ada", "Us"), lead(both, "cyd", "Them")
    tokens = [link(both, ada), link(both, ada)]
    answers = [join(both, both.participant(name), token) for name, token in zip(("bob", "eve"), tokens, strict=True)]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert "it has 2 people" in answers[1].json()["detail"]
    assert call(both, them, "POST", "/team/merges", team="Us").status_code == 409


def test_only_the_leader_invites_renames_and_hands_over(server: Instance) -> None:
    server.competition()
    ada, bob = lead(server, "ada", "Us"), server.participant("bob")
    join(server, bob, link(server, ada))
    assert call(server, bob, "POST", "/team/invitations").status_code == 403
    assert call(server, bob, "DELETE", "/team/invitations/0").status_code == 403
    assert [call(server, ada, "POST", "/team/invitations").status_code for _ in range(21)] == [201] * 20 + [409]
    assert call(server, bob, "PATCH", "/team", name="Mine").status_code == 403
    assert call(server, bob, "PUT", "/team/leader", name="bob").status_code == 403
    assert call(server, ada, "PUT", "/team/leader", name="eve").status_code == 404
    assert call(server, ada, "PUT", "/team/leader", name="bob").json()["leader"] == "bob"
    assert call(server, bob, "PATCH", "/team", name="Mine").json()["name"] == "Mine"


def test_who_left_is_free_and_the_lead_goes_on(both: Instance) -> None:
    both.competition()
    ada, bob = lead(both, "ada", "Us"), both.participant("bob")
    join(both, bob, link(both, ada))
    assert call(both, ada, "POST", "/team/leave").status_code == 204
    assert call(both, bob, "GET", "/team").json()["leader"] == "bob"
    assert call(both, ada, "GET", "/team").status_code == 404
    assert call(both, bob, "POST", "/team/leave").status_code == 204
    assert call(both, ada, "POST", "/teams", name="Us").status_code == 201, "an empty team gives its name back"


def test_who_has_submitted_stays(server: Instance) -> None:
    server.competition()
    ada, bob, eve = lead(server, "ada", "Us"), server.participant("bob"), server.participant("eve")
    tokens = [link(server, ada), link(server, ada)]
    server.submit(ada)
    assert call(server, ada, "POST", "/team/leave").status_code == 409
    server.submit(bob)
    assert join(server, bob, tokens[0]).status_code == 409, "a fresh quota is not to be had by joining"
    with server.database.write() as session:
        session.execute(update(Competition).values(state=CompetitionState.CLOSED.value))
    assert join(server, eve, tokens[1]).status_code == 409, "nobody joins after the close"


def test_empty_solo_team_is_given_up_by_joining(server: Instance) -> None:
    server.competition()
    ada, bob = lead(server, "ada", "Us"), lead(server, "bob", "Them")
    assert join(server, bob, link(server, ada)).status_code == 200
    assert call(server, ada, "POST", "/team/merges", team="Them").status_code == 404


def test_teams_stay_as_they_are_after_the_merge_deadline(server: Instance) -> None:
    at = now()
    deadline = at - timedelta(hours=1)
    elsewhere = deadline.astimezone(timezone(timedelta(hours=5)))
    server.competition(extra=f"merge_deadline = {elsewhere.isoformat()}")
    ada = lead(server, "ada", "Us")
    lead(server, "bob", "Them")
    refused = call(server, ada, "POST", "/team/invitations")
    assert refused.status_code == 409
    assert f"until {deadline:%d %b %Y, %H:%M} UTC" in refused.json()["detail"]
    assert call(server, ada, "POST", "/team/merges", team="Them").status_code == 409


def test_merged_team_has_members_and_submissions_of_both(both: Instance) -> None:
    both.competition()
    ada, bob = lead(both, "ada", "Us"), lead(both, "bob", "Them")
    of_ada, of_bob = both.submit(ada).json()["id"], both.submit(bob).json()["id"]
    merged = merge(both, bob, ada, "us")
    assert merged.json()["members"] == ["ada", "bob"]
    listed = both.client.get(f"{BASE}/submissions", headers=bob).json()
    assert {row["id"] for row in listed} == {of_ada, of_bob}
    assert both.client.get(f"{BASE}/quota", headers=bob).json()["used_today"] == 2
    with both.database.write() as session:
        kept = session.scalars(select(Team).where(Team.name == "Us")).one()
        assert (
            set(session.scalars(select(Shard.team_id))) == set(session.scalars(select(Submission.team_id))) == {kept.id}
        )
        assert leases.claim(session, worker="test", lease_s=60) is not None


def test_merge_needs_the_other_leaders_consent(server: Instance) -> None:
    server.competition()
    ada, bob, eve = lead(server, "ada", "Us"), lead(server, "bob", "Them"), lead(server, "eve", "Others")
    request = call(server, bob, "POST", "/team/merges", team="Us").json()["id"]
    assert call(server, bob, "POST", f"/team/merges/{request}/agree").status_code == 403
    assert call(server, eve, "POST", f"/team/merges/{request}/agree").status_code == 403
    assert call(server, eve, "DELETE", f"/team/merges/{request}").status_code == 404
    assert call(server, bob, "POST", "/team/merges", team="Us").status_code == 409
    assert [row["team"] for row in call(server, ada, "GET", "/team/merges").json()] == ["Them"]
    assert call(server, ada, "DELETE", f"/team/merges/{request}").status_code == 204
    assert call(server, ada, "POST", f"/team/merges/{request}/agree").status_code == 404


def test_merge_must_fit_the_quota_of_one_team(both: Instance) -> None:
    both.competition(opens_at=now(), limits={"submissions_per_day": 3})
    ada, bob = lead(both, "ada", "Us"), lead(both, "bob", "Them")
    for headers in (ada, ada, bob, bob):
        both.submit(headers)
    answer = call(both, bob, "POST", "/team/merges", team="Us")
    assert answer.status_code == 409
    assert "sent 4 submissions; one team could have sent 3" in answer.json()["detail"]


def test_made_team_is_led_by_its_maker(both: Instance) -> None:
    for slug in ("digits", "other"):
        both.competition(slug)
    ada = both.participant()
    assert call(both, ada, "GET", "/team").status_code == 404
    made = call(both, ada, "POST", "/teams", name="  The   Forgetful ")
    assert (made.status_code, made.json()["name"], made.json()["leader"]) == (201, "The Forgetful", "ada")
    assert call(both, ada, "GET", "/team").json() == made.json()
    assert both.submit(ada).json()["team"] == "The Forgetful"
    assert call(both, ada, "POST", "/teams", name="Another").status_code == 409, "a person has one team"
    elsewhere = "/api/v1/competitions/other/teams"
    assert both.client.post(elsewhere, headers=ada, json={"name": "The Forgetful"}).status_code == 201


def test_renaming_after_the_close_needs_the_organiser(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=olga)
    ada = server.participant("ada")
    team = call(server, ada, "POST", "/teams", name="First").json()["id"]
    assert call(server, ada, "PATCH", "/team", name="Second").status_code == 200
    with server.database.write() as session:
        row = session.merge(competition)
        row.opens_at, row.closes_at = now() - timedelta(days=2), now() - timedelta(seconds=1)
    answer = call(server, ada, "PATCH", "/team", name="Third")
    assert (answer.status_code, "organisers" in answer.json()["detail"]) == (409, True)
    act = {"act": "rename", "name": "Third", "reason": "they asked for it"}
    path = f"/api/v1/competitions/digits/teams/{team}/acts"
    assert server.client.post(path, headers=server.headers(olga), json=act).status_code == 204
    assert call(server, ada, "GET", "/team").json()["name"] == "Third"


def test_team_made_by_a_submission_takes_no_persons_name(server: Instance) -> None:
    server.competition()
    assert call(server, server.participant("boris"), "POST", "/teams", name="carla").status_code == 201
    server.participant("ada-2")
    assert call(server, server.participant("dora"), "POST", "/teams", name="ada").status_code == 201
    ada = server.participant("ada")
    assert server.submit(ada).status_code == 201
    assert call(server, ada, "GET", "/team").json()["name"] == "ada-3"


PERSONS = ("boris", "BORIS", "bоris", "𝐛𝐨𝐫𝐢𝐬", "b0rls")
TEAMS = ("the oracle", "Thе Oraclе", "𝕿𝖍𝖊 𝕺𝖗𝖆𝖈𝖑𝖊", "The 0rac1e", "Ｔhe Oracle", "The  Oracle")
UNSHOWN = ("", "   ", "x" * 61, "a\u202eb", "a\x00b", "zero\u200bwidth")
REFERENCES = ("Oracle", "0racle", "o r a c l e", "Оracle", "Original", "0RIGINAL model", "Baseline")


@pytest.mark.parametrize(
    ("names", "status", "said"),
    [
        (PERSONS, 409, ""),
        (TEAMS, 409, ""),
        (UNSHOWN, 422, ""),
        (REFERENCES, 422, "is what a leaderboard calls a reference"),
    ],
    ids=["persons", "teams", "unshown", "references"],
)
def test_team_takes_no_name_that_is_anothers_or_misleads(server, names, status, said):
    server.competition()
    lead(server, "dora", "The Oracle")
    ada, carla, _ = lead(server, "ada", "ada"), server.participant("carla"), server.participant("boris")
    for name in names:
        for answer in (
            call(server, ada, "PATCH", "/team", name=name),
            call(server, carla, "POST", "/teams", name=name),
        ):
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (status, "name"), name
            assert said in answer.text
    assert call(server, ada, "PATCH", "/team", name="Ada").status_code == 200, "it looks like its own"
    assert call(server, carla, "POST", "/teams", name="Oracles of Delphi").status_code == 201
