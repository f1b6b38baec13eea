"""Teams over HTTP: inviting, joining, leaving, handing over, merging."""

from datetime import timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import select, update

from server.db import now
from server.evaluations import leases
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
    ada = lead(both, "ada", "Us")
    tokens = [link(both, ada), link(both, ada)]
    answers = [join(both, both.participant(name), token) for name, token in zip(("bob", "eve"), tokens, strict=True)]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert "it has 2 people" in answers[1].json()["detail"]


def test_only_the_leader_invites_renames_and_hands_over(server: Instance) -> None:
    server.competition()
    ada, bob = lead(server, "ada", "Us"), server.participant("bob")
    join(server, bob, link(server, ada))
    assert call(server, bob, "POST", "/team/invitations").status_code == 403
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
    ada, bob = lead(server, "ada", "Us"), server.participant("bob")
    token = link(server, ada)
    server.submit(ada)
    assert call(server, ada, "POST", "/team/leave").status_code == 409
    server.submit(bob)
    assert join(server, bob, token).status_code == 409, "a fresh quota is not to be had by joining"


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


def test_closed_competition_takes_no_joiners(server: Instance) -> None:
    server.competition()
    ada, bob = lead(server, "ada", "Us"), server.participant("bob")
    token = link(server, ada)
    with server.database.write() as session:
        session.execute(update(Competition).values(state=CompetitionState.CLOSED.value))
    assert join(server, bob, token).status_code == 409


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


def test_merge_must_fit_the_size(server: Instance) -> None:
    server.competition(limits={"team_size": 2})
    ada, bob = lead(server, "ada", "Us"), lead(server, "bob", "Them")
    join(server, server.participant("eve"), link(server, ada))
    assert call(server, bob, "POST", "/team/merges", team="Us").status_code == 409


TEAMS = "/api/v1/competitions/digits/teams"

TEAM = "/api/v1/competitions/digits/team"


def test_made_team_is_led_by_its_maker(both: Instance) -> None:
    both.competition()
    headers = both.participant()
    assert both.client.get(TEAM, headers=headers).status_code == 404
    made = both.client.post(TEAMS, headers=headers, json={"name": "  The   Forgetful "})
    assert made.status_code == 201
    assert made.json()["name"] == "The Forgetful"
    assert made.json()["leader"] == "ada"
    assert both.client.get(TEAM, headers=headers).json() == made.json()
    assert both.submit(headers).json()["team"] == "The Forgetful"


@pytest.mark.parametrize("name", ["the forgetful", "Ｔhe Forgetful", "The  Forgetful"])
def test_taken_name_is_a_conflict_however_it_is_written(both: Instance, name: str) -> None:
    both.competition()
    both.client.post(TEAMS, headers=both.participant("ada"), json={"name": "The Forgetful"})
    answer = both.client.post(TEAMS, headers=both.participant("bob"), json={"name": name})
    assert answer.status_code == 409
    assert answer.json()["errors"][0]["field"] == "name"


def test_same_name_in_another_competition_is_free(server: Instance) -> None:
    server.competition()
    server.competition("other")
    headers = server.participant()
    for slug in ("digits", "other"):
        answer = server.client.post(f"/api/v1/competitions/{slug}/teams", headers=headers, json={"name": "Us"})
        assert answer.status_code == 201


def test_second_team_of_a_person_is_a_conflict(server: Instance) -> None:
    server.competition()
    headers = server.participant()
    server.client.post(TEAMS, headers=headers, json={"name": "one"})
    assert server.client.post(TEAMS, headers=headers, json={"name": "two"}).status_code == 409


@pytest.mark.parametrize("name", ["", "   ", "x" * 61, "a\u202eb", "a\x00b", "zero\u200bwidth"])
def test_name_that_cannot_be_shown_is_refused(server: Instance, name: str) -> None:
    server.competition()
    answer = server.client.post(TEAMS, headers=server.participant(), json={"name": name})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "name"
