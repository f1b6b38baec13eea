"""Teams over HTTP."""

import pytest

from tests.support.instance import Instance

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
