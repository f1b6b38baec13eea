"""Three tasks: every page, list, count, mail and command under the competition's own name says what happened."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from lethe.cli import output
from server.competitions import competitions
from server.config import get_settings
from server.models.account import Role
from server.models.notification import Delivery, QueuedEmail
from server.models.submission import Fault
from tests.server.cli.conftest import Run, answer, told
from tests.support.instance import GOOD_CODE, Instance
from tests.support.tasks import AUTHORS, DIGITS, FACES, open_tasks, part_ids, score_parts, tasks_toml
from tests.support.web import Visitor, plain_text

API = "/api/v1/competitions/three"
TASKS = (FACES, DIGITS, AUTHORS)


class Played:
    """ada scored in all tasks; bob scored in one, failed in two (one by the host); cyd failed in all; dan waits."""

    def __init__(self, server: Instance) -> None:
        self.server = server
        self.olga = server.confirmed_account("olga", Role.ORGANISER)
        open_tasks(server, self.olga)
        self.organiser = server.headers(self.olga)
        hook = {"url": "https://hooks.example.org/x", "events": ["submission.scored", "submission.failed"]}
        server.client.post(f"{API}/webhooks", headers=self.organiser, json=hook)
        self.teams = {name: server.headers(server.confirmed_account(name)) for name in ("ada", "bob", "cyd", "dan")}
        self.sent = {name: server.submit(headers, slug="three").json()["id"] for name, headers in self.teams.items()}
        score_parts(server, self.sent["ada"], faces=0.1, digits=0.2, authors=0.3)
        score_parts(server, self.sent["bob"], faces=0.6)
        bob, cyd = part_ids(server, self.sent["bob"]), part_ids(server, self.sent["cyd"])
        server.fail(bob[DIGITS], Fault.PARTICIPANT)
        server.fail(bob[AUTHORS], Fault.HOST)
        for task in TASKS:
            server.fail(cyd[task], Fault.PARTICIPANT)

    def get(self, path: str, who: str = "", **params: str) -> Any:
        headers = self.teams[who] if who else self.organiser
        answer = self.server.client.get(path, headers=headers, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def played(server: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """Play on an instance that queues mails."""
    monkeypatch.setenv("LETHE_SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("LETHE_MAIL_FROM", "lethe@example.org")
    get_settings.cache_clear()
    yield Played(server)
    get_settings.cache_clear()


def test_counts_of_the_organisers_are_of_all_tasks(played: Played) -> None:
    overview = played.get(f"{API}/overview")
    failures = {(row["task"], row["fault"]): (row["count"], row["teams"]) for row in overview["failures"]}
    assert failures == {
        (FACES, "participant"): (1, 1),
        (DIGITS, "participant"): (2, 2),
        (AUTHORS, "participant"): (1, 1),
        (AUTHORS, "host"): (1, 1),
    }
    assert {row["competition"] for row in overview["failures"]} == {"three"}
    assert {(row["competition"], row["task"], row["team"]) for row in overview["waiting"]} == {
        ("three", task, "dan") for task in TASKS
    }
    assert overview["runs_left"] == 3, "one smoke run for each task"
    assert (overview["unfinished"], overview["teams"]) == (1, 4)
    assert overview["stages"] == {"scored": 2, "failed": 1, "queued": 1}
    assert {(row["task"], row["visibility"], row["state"]) for row in overview["splits"]} == {
        (task, split, "ready") for task in TASKS for split in ("public", "private")
    }
    assert overview["rescoring"]["three"]["finals"] == 4, "three of ada, one of bob"
    assert overview["rescoring"]["three"]["runs"] == 16
    assert any("authors of three failed by the host's fault" in each["text"] for each in overview["warnings"])
    assert played.get("/api/v1/dashboard")["failures"] == overview["failures"]
    days = played.get(f"{API}/activity")["failures_by_day"]
    assert {row["fault"]: row["count"] for row in days if row["count"]} == {"participant": 4, "host": 1}


def test_lists_say_which_tasks_failed(played: Played, visitor: Visitor) -> None:
    def listed(**wanted: str) -> set[str]:
        return {row["team"] for row in played.get(f"{API}/all-submissions", **wanted)}

    assert listed() == {"ada", "bob", "cyd", "dan"}
    assert listed(stage="failed") == {"bob", "cyd"}
    assert listed(stage="scored") == {"ada", "bob"}
    assert listed(stage="failed", error_class="exception") == {"bob", "cyd"}
    assert listed(fault="host") == {"bob"}
    visitor.log_in("olga")
    page = plain_text(visitor.get("/organise/three/submissions").text)
    assert "failed in digits: exception, authors: exception" in page
    assert "0.20000" in page, "ada's mean"
    assert "bob" not in plain_text(visitor.get("/organise/three/submissions?stage=queued").text).replace(
        "ada, bob, cyd", ""
    )
    dashboard = plain_text(visitor.get("/organise").text)
    assert "three authors, 1 team" in dashboard
    assert "Nothing waits" not in dashboard


def test_tables_hold_the_parts(played: Played) -> None:
    def table(name: str) -> list[dict[str, Any]]:
        path = f"{API}/exports/{name}"
        text = played.server.client.get(path, headers=played.organiser, params={"format": "jsonl"}).text
        return [json.loads(line) for line in text.splitlines()]

    of_bob = [row for row in table("submissions") if row["team"] == "bob"]
    assert {row["task"]: row["stage"] for row in of_bob if row["parent_id"] == played.sent["bob"]} == {
        FACES: "scored",
        DIGITS: "failed",
        AUTHORS: "failed",
    }
    scores = {(row["team"], row["task"]): row["public_final_score"] for row in table("evaluations")}
    assert {key: score for key, score in scores.items() if score} == {
        ("ada", FACES): 0.1,
        ("ada", DIGITS): 0.2,
        ("ada", AUTHORS): 0.3,
        ("bob", FACES): 0.6,
    }


def test_a_team_reads_which_tasks_failed(played: Played, visitor: Visitor) -> None:
    own = played.get(f"/api/v1/submissions/{played.sent['bob']}", "bob")
    assert [(part["task"], part["stage"]) for part in own["parts"]] == [
        (FACES, "scored"),
        (DIGITS, "failed"),
        (AUTHORS, "failed"),
    ]
    visitor.log_in("bob")
    assert "failed in Digits: exception, Authors: exception" in plain_text(
        visitor.get("/competitions/three/submissions").text
    )
    assert "failed in 2 of 3 tasks" in plain_text(visitor.get(f"/submissions/{played.sent['bob']}").text)


def test_mails_and_webhooks_say_what_became_of_each_task(played: Played) -> None:
    with played.server.database.read() as session:
        mails = {(row.address, row.subject): row.body for row in session.scalars(select(QueuedEmail))}
        events = [row.payload for row in session.scalars(select(Delivery))]
    assert {key for key in mails if not key[0].startswith("olga")} == {
        ("ada@example.org", "Three tasks: a score"),
        ("bob@example.org", "Three tasks: a score, and 2 of 3 tasks failed"),
        ("cyd@example.org", "Three tasks: a failure"),
    }
    bobs = mails["bob@example.org", "Three tasks: a score, and 2 of 3 tasks failed"]
    assert "has been scored in 1 of 3 tasks (faces); it failed in digits, authors" in bobs
    assert {key[1] for key in mails if key[0].startswith("olga")} == {"Three tasks: platform failure"}
    told = {event["data"]["submission"]: event["data"]["tasks"] for event in events}
    assert {task: end["stage"] for task, end in told[played.sent["bob"]].items()} == {
        FACES: "scored",
        DIGITS: "failed",
        AUTHORS: "failed",
    }
    assert told[played.sent["bob"]][AUTHORS]["fault"] == "host"


def test_the_command_line_says_it_too(played: Played, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_TOKEN", played.teams["bob"]["Authorization"].removeprefix("Bearer "))
    monkeypatch.setattr(output.console, "width", 300)
    listed = " ".join(lethe("submissions", "-c", "three").stdout.split())
    assert "scored, failed in 2 of 3 tasks (digits: exception, authors: exception)" in listed
    assert "0.2" in listed


def test_what_is_evaluated_of_competitions_is_one_query(played: Played) -> None:
    played.server.competition("single", organiser=played.olga)
    with played.server.database.read() as session:
        shown = competitions.list_organised(session, played.olga)
        found = [each.slug for each in competitions.evaluated(session, shown)]
    assert found == ["single", "three--authors", "three--digits", "three--faces"]


@pytest.fixture
def code(server: Instance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A file to send by ada, who is logged in; the competition is open."""
    open_tasks(server, server.account("olga", Role.ORGANISER))
    monkeypatch.setenv("LETHE_TOKEN", server.participant()["Authorization"].removeprefix("Bearer "))
    path = tmp_path / "mine.py"
    path.write_bytes(GOOD_CODE)
    return str(path)


def test_submit_names_tasks(server: Instance, lethe: Run, code: str) -> None:
    made = answer(lethe("submit", code, "-c", "three", "--task", "faces", "--task", "authors", "--json"))
    assert set(part_ids(server, made["id"])) == {"faces", "authors"}
    score_parts(server, made["id"], faces=0.1)
    shown = lethe("status", made["id"], "-c", "three").output
    assert part_ids(server, made["id"])["faces"] in shown
    refused = lethe("submit", code, "-c", "three", "--task", "birds")
    assert "tasks must be of faces, digits, authors" in told(refused)


def test_leaderboards_of_one_task_and_of_all(server: Instance, lethe: Run, code: str) -> None:
    sent = answer(lethe("submit", code, "-c", "three", "--json"))["id"]
    score_parts(server, sent, faces=0.1, digits=0.2, authors=0.3)
    board = answer(lethe("leaderboard", "-c", "three", "--json"))
    assert [row["score"] for row in board["rows"] if row["kind"] == "team"] == [0.2]
    board = answer(lethe("leaderboard", "-c", "three", "--task", "faces", "--json"))
    assert [row["score"] for row in board["rows"] if row["kind"] == "team"] == [0.1]
    assert "Authors" in lethe("show", "-c", "three").output


def test_validate_checks_each_task(lethe: Run, tmp_path: Path) -> None:
    path = tmp_path / "three.toml"
    path.write_text(tasks_toml(text=False, extra="[splits]\ntrain_size = 200\n"))
    found = answer(lethe("competition", "validate", str(path), "--json"))
    assert {slug: sizes["public"]["forget"] > 0 for slug, sizes in found["set_sizes"].items()} == {
        "three--faces": True,
        "three--digits": True,
    }
    path.write_text(tasks_toml(text=False).replace('name = "mlp"', 'name = "none"', 1))
    assert "'none'" in told(lethe("competition", "validate", str(path)))
