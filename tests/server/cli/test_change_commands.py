"""`lethe competition update|extend|limits|announce|disqualify|restore|archive`, over the API."""

import json
import os
from datetime import timedelta
from pathlib import Path
from zipfile import ZipFile

import pytest
from sqlalchemy import select

from lethe.client.api import ApiError, LetheClient
from lethe.client.receipts import verify
from lethe.competition.visibility import Visibility
from server.db import now
from server.models.account import Role
from server.models.competition import CompetitionState
from server.models.evaluation import PublicScore
from tests.server.cli.conftest import Run, answer, told, use
from tests.support.instance import Instance, competition_toml

WHY = ("--reason", "two participants asked")


@pytest.fixture
def submission(server: Instance, monkeypatch: pytest.MonkeyPatch) -> str:
    """Log an organiser in. Return the id of a scored submission to their competition."""
    server.competition(organiser=use(server, monkeypatch, "olga", Role.ORGANISER))
    made = str(server.submit(server.participant("ada")).json()["id"])
    server.score(made, 0.5)
    return made


def last_event(lethe: Run) -> tuple[str, str]:
    event = answer(lethe("competition", "audit", "digits", "--json"))[0]
    return event["action"], event["reason"]


def test_update_replaces_a_draft(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition(organiser=use(server, monkeypatch, "olga", Role.ORGANISER), state=CompetitionState.DRAFT)
    file = Path("new.toml")
    file.write_text(competition_toml().replace("n_models = 4", "n_models = 6"))
    assert answer(lethe("competition", "update", str(file), "--json"))["runs"] == 6


def test_update_changes_only_the_texts_once_it_runs(lethe: Run, submission: str) -> None:
    file = Path("new.toml")
    file.write_text(competition_toml().replace("n_models = 4", 'n_models = 6\nsummary = "Six digits"'))
    assert "can no longer be replaced" in told(lethe("competition", "update", str(file)))
    assert "--reason is needed" in told(lethe("competition", "update", str(file), "--texts"))
    shown = answer(lethe("competition", "update", str(file), "--texts", *WHY, "--json"))
    assert (shown["summary"], shown["runs"]) == ("Six digits", 4)
    assert last_event(lethe) == ("competition.described", WHY[1])


def test_extend_takes_a_time_in_utc(lethe: Run, submission: str) -> None:
    until = (now() + timedelta(days=9)).replace(microsecond=0, tzinfo=None).isoformat()
    assert answer(lethe("competition", "extend", "digits", until, *WHY, "--json"))["closes_at"] == f"{until}Z"
    assert "not a date with a time" in told(lethe("competition", "extend", "digits", "soon", *WHY))


def test_limits_are_shown_previewed_and_changed(lethe: Run, submission: str) -> None:
    change = ("competition", "limits", "digits", "--set", "submissions_per_day=1", "--set", "submissions_total=none")
    assert "no limit" in lethe("competition", "limits", "digits").stdout
    assert answer(lethe(*change, "--preview", "--json"))["applied"] is False
    assert answer(lethe("competition", "limits", "digits", "--json"))["submissions_per_day"] == 5
    assert "--reason is needed" in told(lethe(*change))
    assert answer(lethe(*change, *WHY, "--json"))["changed"] == {"submissions_per_day": [5, 1]}
    assert "NAME=VALUE" in told(lethe("competition", "limits", "digits", "--set", "team_size", *WHY))


def test_announcement_comes_from_text_or_file(server: Instance, lethe: Run, submission: str) -> None:
    Path("news.md").write_text("The *end* moved.")
    assert "not both" in told(lethe("competition", "announce", "digits", "--title", "News"))
    lethe("competition", "announce", "digits", "--title", "News", "--file", "news.md")
    (shown,) = server.client.get("/api/v1/competitions/digits/announcements").json()
    assert (shown["title"], shown["text"]) == ("News", "The *end* moved.")


def test_submissions_are_disqualified_and_restored_by_prefix(lethe: Run, submission: str) -> None:
    def disqualified() -> list[str]:
        listed = answer(lethe("competition", "submissions", "digits", "--only", "disqualified", "--json"))
        return [row["id"] for row in listed]

    assert lethe("competition", "disqualify", "digits", submission[:6], *WHY).exit_code == 0
    assert disqualified() == [submission]
    assert lethe("competition", "restore", "digits", submission[:6], *WHY).exit_code == 0
    assert disqualified() == []
    assert "No id of the submissions" in told(lethe("competition", "restore", "digits", "zzzzzz", *WHY))


def test_score_is_confirmed_by_prefix(server: Instance, lethe: Run, submission: str) -> None:
    assert "no unconfirmed score" in told(lethe("competition", "confirm", "digits", submission[:6], *WHY))
    with server.database.write() as session:
        session.scalars(select(PublicScore)).one().is_unconfirmed = True
    only = ("competition", "submissions", "digits", "--only", "unconfirmed")
    assert [row["score"]["is_unconfirmed"] for row in answer(lethe(*only, "--json"))] == [True]
    assert "it takes no rank" in lethe("competition", "analysis", "digits", submission).stdout
    assert "unconfirmed" in lethe("leaderboard", "-c", "digits").stdout
    assert lethe("competition", "confirm", "digits", submission[:6], *WHY).exit_code == 0
    assert answer(lethe(*only, "--json")) == []
    assert last_event(lethe) == ("submission.confirmed", WHY[1])


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


def test_teams_are_disqualified_by_name(lethe: Run, submission: str) -> None:
    assert "has no team called 'ad'; there are: ada" in told(
        lethe("competition", "disqualify", "digits", "--team", "ad", *WHY)
    )
    assert lethe("competition", "disqualify", "digits", "--team", "Ada", *WHY).exit_code == 0
    assert answer(lethe("competition", "people", "digits", "--json"))["teams"][0]["disqualified_at"]
    assert lethe("competition", "restore", "digits", "--team", "ada", *WHY).exit_code == 0
    assert "not both" in told(lethe("competition", "restore", "digits", *WHY))


def test_archive_and_delete(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    olga = use(server, monkeypatch, "olga", Role.ORGANISER)
    server.competition(organiser=olga, state=CompetitionState.FINAL)
    server.competition("letters", organiser=olga, state=CompetitionState.DRAFT)
    assert answer(lethe("competition", "archive", "digits", "--json"))["state"] == "archived"
    assert lethe("competition", "delete", "letters").exit_code == 0
    assert "Not found" in told(lethe("competition", "status", "letters"))


def test_cancel_preparation_makes_a_draft(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition(organiser=use(server, monkeypatch, "olga", Role.ORGANISER), state=CompetitionState.DRAFT)
    assert answer(lethe("competition", "prepare", "digits", "--json"))["state"] == "preparing"
    assert answer(lethe("competition", "cancel-preparation", "digits", "--json"))["state"] == "draft"


def test_scored_submission_shows_rank_share_and_time(
    server: Instance, lethe: Run, submission: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = server.account("bob")
    monkeypatch.setenv("LETHE_TOKEN", server.headers(other)["Authorization"].removeprefix("Bearer "))
    made = str(server.submit(server.headers(other)).json()["id"])
    server.score(made, 0.25)
    shown = answer(lethe("status", made[:5], "--json"))
    assert (shown["rank"], shown["teams"], shown["share_of_oracle"]) == (2, 2, None)
    assert "2 of 2" in lethe("status", made[:5]).stdout
    assert "time taken" in lethe("status", made[:5]).stdout


def test_prefix_is_looked_for_in_every_competition(
    server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slug in ("digits", "letters"):
        server.competition(slug)
    bob = server.account("bob")
    monkeypatch.setenv("LETHE_TOKEN", server.headers(bob)["Authorization"].removeprefix("Bearer "))
    made = str(server.submit(server.headers(bob), slug="letters").json()["id"])
    assert answer(lethe("status", made[:8], "--json"))["id"] == made
    assert lethe("logs", made[:8]).exit_code == 0


def test_receipt_is_written_and_verifies(
    server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.competition()
    bob = server.account("bob")
    monkeypatch.setenv("LETHE_TOKEN", server.headers(bob)["Authorization"].removeprefix("Bearer "))
    made = str(server.submit(server.headers(bob)).json()["id"])
    server.score(made, 0.25)
    assert lethe("receipt", made[:6], "-o", "mine.json").exit_code == 0
    verify(json.loads(Path("mine.json").read_text()))
    assert "exists" in told(lethe("receipt", made, "-o", "mine.json"))


def test_teams_merge_by_name(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition()
    for name in ("ada", "bob"):
        account = server.account(name)
        monkeypatch.setenv("LETHE_TOKEN", server.headers(account)["Authorization"].removeprefix("Bearer "))
        lethe("team", "create", f"team {name}", "-c", "digits")
    assert "--agree 'team bob'" in lethe("team", "merge", "team ada", "-c", "digits").stdout
    monkeypatch.setenv(
        "LETHE_TOKEN",
        server.client.post(
            "/api/v1/tokens", json={"name": "ada", "password": "correct horse battery", "label": "x"}
        ).json()["token"],
    )
    assert [item["team"] for item in answer(lethe("team", "merge", "-c", "digits", "--json"))] == ["team bob"]
    assert "team bob into team ada" in told(lethe("team", "merge", "--agree", "team eve", "-c", "digits"))
    merged = answer(lethe("team", "merge", "--agree", "team bob", "-c", "digits", "--json"))
    assert sorted(merged["members"]) == ["ada", "bob"]


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
    lethe("competition", "reveal", "digits")
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
