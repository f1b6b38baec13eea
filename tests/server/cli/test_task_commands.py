"""Commands where a competition has tasks."""

from pathlib import Path

import pytest

from server.models.account import Role
from tests.server.cli.conftest import Run, answer, told
from tests.support.instance import GOOD_CODE, Instance
from tests.support.tasks import open_tasks, part_ids, score_parts, tasks_toml


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
