"""`lethe join`, `terms` and `lethe competition settings|participants|admit|refuse|links|addresses`, over the API."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

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
    listed = answer(lethe("competition", "participants", "digits", "--state", "asked", "--json"))["participants"]
    assert [row["message"] for row in listed] == ["from Ulm"]
    assert "admitted" in lethe("competition", "admit", "digits", "ada").stdout
    assert "is admitted already" in told(lethe("competition", "admit", "digits", "ada"))
    act_as(ada)
    assert "--accept 1" in lethe("terms", "-c", "digits").stdout
    assert answer(lethe("terms", "-c", "digits", "--accept", "1", "--json"))["may_take_part"]
    act_as(owner)
    assert answer(lethe("competition", "refuse", "digits", "ada", *WHY, "--json"))["decision"] == "refuse"
    act_as(ada)
    assert "a rule" in lethe("join", "digits").stdout


def test_a_link_is_made_used_and_revoked(server: Instance, lethe: Run, act_as: As) -> None:
    owner, ada = server.account("olga", Role.ORGANISER), server.account("ada")
    server.competition(organiser=owner)
    act_as(owner)
    file = Path("settings.toml")
    file.write_text('[participation]\nadmission = "invited"\nprivate = true\n[training]\nepochs = 9\n')
    answer(lethe("competition", "settings", "digits", str(file), *WHY, "--json"))
    address = lethe("competition", "links", "digits", "--make", "--uses", "2", "--label", "lab").stdout.split()[0]
    act_as(ada)
    assert "No competition" in told(lethe("show", "-c", "digits"))
    assert answer(lethe("join", "digits", "--token", address, "--json"))["may_take_part"]
    act_as(owner)
    (link,) = answer(lethe("competition", "links", "digits", "--json"))
    assert (link["uses"], link["most_uses"]) == (1, 2)
    assert "no open link" in lethe("competition", "links", "digits", "--revoke", link["id"]).stdout
    assert "sends no e-mail" in told(lethe("competition", "addresses", "digits", "--add", "ada@example.org"))
    assert answer(lethe("competition", "addresses", "digits", "--json")) == []


def test_settings_need_a_section_that_can_change(server: Instance, lethe: Run, act_as: As) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    act_as(owner)
    Path("settings.toml").write_text("[training]\nepochs = 9\n")
    assert "participation" in told(lethe("competition", "settings", "digits", "settings.toml", *WHY))


def test_settings_take_dates_of_phases_and_late_entries(server: Instance, lethe: Run, act_as: As) -> None:
    owner = server.account("olga", Role.ORGANISER)
    made = server.competition(organiser=owner)
    act_as(owner)
    begins, until = made.closes_at - timedelta(hours=6), made.closes_at + timedelta(days=9)
    text = (
        f"[late]\naccepted = true\nuntil = {until.isoformat()}\n"
        f'[[phases]]\nname = "practice"\n[[phases]]\nname = "final"\nbegins_at = {begins.isoformat()}\n'
    )
    Path("settings.toml").write_text(text)
    answer(lethe("competition", "settings", "digits", "settings.toml", *WHY, "--json"))
    shown = server.client.get("/api/v1/competitions/digits").json()
    assert [datetime.fromisoformat(phase["begins_at"]) for phase in shown["phases"][1:]] == [begins]
    assert datetime.fromisoformat(shown["late"]["until"]) == until


@pytest.mark.parametrize("written", ["2030-03-01", "2030-03-01T12:00:00", "12:00:00"])
def test_settings_name_a_date_without_zone(server: Instance, lethe: Run, act_as: As, written: str) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    act_as(owner)
    Path("settings.toml").write_text(f"[late]\naccepted = true\nuntil = {written}\n")
    assert "until" in told(lethe("competition", "settings", "digits", "settings.toml", *WHY))
    Path("settings.toml").write_text("[late]\naccepted = true\nsubmissions_per_day = inf\n")
    assert "finite" in told(lethe("competition", "settings", "digits", "settings.toml", *WHY))
