"""`lethe competition update|bundle`, and what `status`, `verify` and `leaderboard` say, over the API."""

import json
import os
from pathlib import Path
from zipfile import ZipFile

import pytest

from lethe.client.api import ApiError, LetheClient
from lethe.client.receipts import verify
from lethe.competition.visibility import Visibility
from server.models.account import Role
from server.models.competition import CompetitionState
from tests.server.cli.conftest import Run, answer, told, use
from tests.support.instance import Instance, competition_toml


def test_update_replaces_a_draft(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition(organiser=use(server, monkeypatch, "olga", Role.ORGANISER), state=CompetitionState.DRAFT)
    file = Path("new.toml")
    file.write_text(competition_toml().replace("n_models = 4", "n_models = 6"))
    assert answer(lethe("competition", "update", str(file), "--json"))["runs"] == 6


def test_update_refuses_what_runs(lethe: Run, submission: str) -> None:
    file = Path("new.toml")
    file.write_text(competition_toml().replace("n_models = 4", "n_models = 6"))
    assert "can no longer be replaced" in told(lethe("competition", "update", str(file)))


@pytest.mark.parametrize("attacks", ["crossfit", "exact"])
def test_scale_is_told(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch, attacks: str) -> None:
    olga = use(server, monkeypatch, "olga", Role.ORGANISER)
    server.competition(organiser=olga, extra=f'[scoring]\nattacks = "{attacks}"')
    words = "Scored as in 2023 by the exact attacks" if attacks == "exact" else "Exact retraining scores about 1"
    for command in (("leaderboard", "-c", "digits"), ("show", "-c", "digits")):
        done = lethe(*command)
        assert words in " ".join(f"{done.stdout} {done.stderr}".split())
    file = Path("new.toml")
    file.write_text(competition_toml(extra=f'[scoring]\nattacks = "{attacks}"'))
    checked = lethe("competition", "validate", str(file), "--file-only").stdout
    assert ("which an entry can win without unlearning" in " ".join(checked.split())) == (attacks == "exact")


def test_scored_submission_shows_rank_share_and_time(server, lethe, submission, monkeypatch):
    other = server.account("bob")
    monkeypatch.setenv("LETHE_TOKEN", server.headers(other)["Authorization"].removeprefix("Bearer "))
    made = str(server.submit(server.headers(other)).json()["id"])
    server.score(made, 0.25)
    shown = answer(lethe("status", made[:5], "--json"))
    assert (shown["rank"], shown["teams"], shown["share_of_oracle"]) == (2, 2, None)
    assert "2 of 2" in lethe("status", made[:5]).stdout
    assert "time taken" in lethe("status", made[:5]).stdout


def test_prefix_is_looked_for_in_every_competition(server, lethe, monkeypatch):
    for slug in ("digits", "letters"):
        server.competition(slug)
    bob = server.account("bob")
    monkeypatch.setenv("LETHE_TOKEN", server.headers(bob)["Authorization"].removeprefix("Bearer "))
    made = str(server.submit(server.headers(bob), slug="letters").json()["id"])
    assert answer(lethe("status", made[:8], "--json"))["id"] == made
    assert lethe("logs", made[:8]).exit_code == 0


def test_receipt_is_written_and_verifies(server, lethe, monkeypatch, tmp_path):
    server.competition()
    bob = server.account("bob")
    monkeypatch.setenv("LETHE_TOKEN", server.headers(bob)["Authorization"].removeprefix("Bearer "))
    made = str(server.submit(server.headers(bob)).json()["id"])
    server.score(made, 0.25)
    Path("mine.json").write_text(lethe("api", "GET", f"/submissions/{made}/receipt").stdout)
    verify(json.loads(Path("mine.json").read_text()))
    assert made in lethe("verify", "mine.json").stdout


def test_mistake_in_a_file_is_told_once(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server, monkeypatch, "olga", Role.ORGANISER)
    with LetheClient("http://localhost", token=os.environ["LETHE_TOKEN"]) as client, pytest.raises(ApiError) as told:
        client.create_competition(competition_toml().replace("epochs = 1", "epochs = 0"))
    assert str(told.value).count("training.epochs") == 1


def test_results_are_written_as_a_folder_that_is_checked(server: Instance, lethe: Run, submission: str) -> None:
    assert "sealed" in told(lethe("competition", "bundle", "digits", "results"))
    lethe("competition", "close", "digits")
    server.tick()
    server.score(submission, 0.25, visibility=Visibility.PRIVATE)
    server.tick()
    lethe("api", "POST", "/competitions/digits/reveal")
    made = answer(lethe("competition", "bundle", "digits", "results", "--json"))
    assert made["files"] == sum(path.is_file() for path in Path("results").rglob("*"))
    assert "exists" in told(lethe("competition", "bundle", "digits", "results"))
    checked = answer(lethe("verify", "results", "--json"))
    assert (checked["differences"], checked["scores"]) == ([], 2)
    Path("results/index.html").write_text("other")
    changed = lethe("verify", "results")
    assert changed.exit_code == 3
    assert "index.html is not what the manifest says" in changed.output
    assert lethe("competition", "bundle", "digits", "results.zip", "--without-seeds").exit_code == 0
    names = ZipFile("results.zip").namelist()
    assert {"index.html", "CITATION.cff", "manifest.json"} <= set(names)
    assert not [name for name in names if name.startswith("code/")], "nobody agreed"
