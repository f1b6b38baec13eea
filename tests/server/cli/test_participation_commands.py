"""`lethe join`, over the API."""

from collections.abc import Callable

import pytest

from server.models.account import Account, Role
from tests.server.cli.conftest import Run, answer, told
from tests.support.instance import Instance

APPROVED = '[participation]\nadmission = "approved"\nterms = "Be fair."'
WHY = ("--reason", "a rule")
As = Callable[[Account], None]


@pytest.fixture
def act_as(server: Instance, monkeypatch: pytest.MonkeyPatch) -> As:
    def log_in(account: Account) -> None:
        token = server.headers(account)["Authorization"].removeprefix("Bearer ")
        monkeypatch.setenv("LETHE_TOKEN", token)

    return log_in


def test_a_person_asks_is_admitted_and_accepts(server: Instance, lethe: Run, act_as: As) -> None:
    owner, ada = server.account("olga", Role.ORGANISER), server.account("ada")
    server.competition(organiser=owner, extra=APPROVED)
    act_as(ada)
    assert answer(lethe("join", "digits", "--status", "--json"))["state"] == "none"
    assert answer(lethe("join", "digits", "-m", "from Ulm", "--json"))["state"] == "asked"
    act_as(owner)
    person = "/competitions/digits/participants/ada/decision"
    lethe("api", "POST", person, "-f", "decision=admit")
    act_as(ada)
    assert "version 1" in lethe("join", "digits").stdout
    assert answer(lethe("join", "digits", "--accept", "1", "--json"))["may_take_part"]
    act_as(owner)
    lethe("api", "POST", person, "-f", "decision=refuse", "-f", "reason=a rule")
    act_as(ada)
    assert "a rule" in lethe("join", "digits").stdout


def test_a_link_is_taken_as_its_address(server: Instance, lethe: Run, act_as: As) -> None:
    owner, ada = server.account("olga", Role.ORGANISER), server.account("ada")
    server.competition(organiser=owner, extra='[participation]\nadmission = "invited"\nprivate = true')
    act_as(owner)
    made = answer(lethe("api", "POST", "/competitions/digits/links", "-f", "uses=2", "-f", "label=lab"))
    act_as(ada)
    assert "No competition" in told(lethe("show", "-c", "digits"))
    address = f"http://localhost/competitions/digits/join?token={made['token']}"
    assert answer(lethe("join", "digits", "--token", address, "--json"))["may_take_part"]
