"""A team's name is nobody else's, and stands once the results do."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from server.accounts import accounts
from server.db import now
from server.errors import Conflict
from server.models.account import Account, Role
from server.teams import teams
from tests.support.instance import PASSWORD, Instance

Take = Callable[[Session], object]


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


def taken_at_once(server: Instance, first: Take, second: Take) -> Exception | None:
    """Let two take names, the second while the first has not committed yet. Return what the second met."""
    with ThreadPoolExecutor() as threads, server.database.write() as session:
        first(session)
        other = threads.submit(take, server, second)
        assert not wait([other], timeout=0.5).done, "it waits for what becomes of the first"
        session.commit()
        return other.exception(timeout=30)


def take(server: Instance, name: Take) -> None:
    with server.database.write() as session:
        name(session)


def account_called(name: str) -> Take:
    return lambda session: accounts.register(session, name=name, password=PASSWORD)


def test_accounts_that_look_alike_registered_at_once_are_one(both: Instance) -> None:
    met = taken_at_once(both, account_called("rnodern"), account_called("modern"))
    assert isinstance(met, Conflict)
    assert taken_at_once(both, account_called("b0ris"), account_called("BORlS")) is not None


def test_names_taken_at_once_are_one_teams_or_persons(both: Instance) -> None:
    competition, ada, boris = both.competition(), both.account("ada"), both.account("boris")

    def team(account: Account, name: str) -> Take:
        return lambda session: teams.create(session, session.merge(competition), session.merge(account), name=name)

    def renamed(session: Session) -> None:
        own = teams.own_team(session, session.merge(competition), session.merge(ada))
        teams.rename(session, own, name="The Ha11", actor=ada)

    assert isinstance(taken_at_once(both, team(ada, "Orbit"), team(boris, "0rbit")), Conflict)
    assert isinstance(taken_at_once(both, account_called("clara"), team(boris, "c1ara")), Conflict)
    assert isinstance(taken_at_once(both, renamed, team(boris, "The Hall")), Conflict)


@pytest.mark.parametrize(
    "name", ["Oracle", "0racle", "o r a c l e", "Оracle", "Original", "0RIGINAL model", "Baseline"]
)
def test_name_of_a_boards_reference_is_refused(server: Instance, name: str) -> None:
    server.competition()
    ada = server.participant()
    made = server.client.post("/api/v1/competitions/digits/teams", headers=ada, json={"name": name})
    assert made.status_code == 422
    assert "is what a leaderboard calls a reference" in made.text
    assert server.client.post(
        "/api/v1/competitions/digits/teams", headers=ada, json={"name": "Oracles of Delphi"}
    ).is_success
