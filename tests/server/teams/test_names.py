"""A team's name is nobody else's, and stands once the results do."""

from datetime import timedelta
from typing import Any

import pytest

from server.db import now
from server.models.account import Role
from tests.support.instance import Instance


def renamed(server: Instance, headers: dict[str, str], name: str) -> Any:
    return server.client.patch("/api/v1/competitions/digits/team", headers=headers, json={"name": name})


def made(server: Instance, headers: dict[str, str], name: str) -> Any:
    return server.client.post("/api/v1/competitions/digits/teams", headers=headers, json={"name": name})


@pytest.mark.parametrize("name", ["boris", "BORIS", "bоris", "𝐛𝐨𝐫𝐢𝐬", "b0rls"])
def test_team_cannot_take_a_persons_name(server: Instance, name: str) -> None:
    server.competition()
    ada, _ = server.participant("ada"), server.participant("boris")
    assert made(server, ada, name).status_code == 409
    assert made(server, ada, "ada").status_code == 201, "the own name may be taken"
    assert renamed(server, ada, name).status_code == 409


def test_team_cannot_look_like_another(server: Instance) -> None:
    server.competition()
    assert made(server, server.participant("ada"), "The Oracle").status_code == 201
    boris = server.participant("boris")
    for name in ("the oracle", "Thе Oraclе", "𝕿𝖍𝖊 𝕺𝖗𝖆𝖈𝖑𝖊", "The 0rac1e"):
        assert made(server, boris, name).status_code == 409


def test_renaming_after_the_close_needs_the_organiser(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=olga)
    ada = server.participant("ada")
    team = made(server, ada, "First").json()["id"]
    assert renamed(server, ada, "Second").status_code == 200
    with server.database.write() as session:
        row = session.merge(competition)
        row.opens_at, row.closes_at = now() - timedelta(days=2), now() - timedelta(seconds=1)
    answer = renamed(server, ada, "Third")
    assert (answer.status_code, "organisers" in answer.json()["detail"]) == (409, True)
    act = {"act": "rename", "name": "Third", "reason": "they asked for it"}
    path = f"/api/v1/competitions/digits/teams/{team}/acts"
    assert server.client.post(path, headers=server.headers(olga), json=act).status_code == 204
    assert server.client.get("/api/v1/competitions/digits/team", headers=ada).json()["name"] == "Third"


def test_team_keeps_its_name_in_another_form(server: Instance) -> None:
    server.competition()
    ada = server.participant("ada")
    assert made(server, ada, "First").status_code == 201
    assert renamed(server, ada, "F1rst").status_code == 200, "it looks like its own"
    assert made(server, server.participant("boris"), "Second").status_code == 201
    assert renamed(server, ada, "Sec0nd").status_code == 409


def test_team_made_by_a_submission_takes_no_persons_name(server: Instance) -> None:
    server.competition()
    assert made(server, server.participant("boris"), "carla").status_code == 201
    server.participant("ada-2")
    assert made(server, server.participant("dora"), "ada").status_code == 201
    ada = server.participant("ada")
    assert server.submit(ada).status_code == 201
    assert server.client.get("/api/v1/competitions/digits/team", headers=ada).json()["name"] == "ada-3"
