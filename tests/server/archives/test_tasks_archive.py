"""A competition goes to another instance with all its tasks; rows of older versions are read."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from sqlalchemy import select

from lethe.client.receipts import verify
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput
from server.archives.exporter import OWN_PARTS, RENAMED, read_row, unknown_columns, write
from server.config import get_settings
from server.db import Database
from server.errors import Conflict
from server.leaderboard import boards
from server.models.account import Role
from server.models.competition import Competition
from server.models.submission import Submission
from server.submissions import receipts
from tests.support.archives import Other, changed, listed
from tests.support.instance import Instance
from tests.support.tasks import open_tasks, part_ids, score_parts

ROWS = "rows/competitions.jsonl"


@pytest.fixture
def sent(server: Instance) -> str:
    """A submission that has a score in each task."""
    open_tasks(server, server.account("olga", Role.ORGANISER))
    submission: str = server.submit(server.participant(), slug="three").json()["id"]
    score_parts(server, submission, faces=0.1, digits=0.2, authors=0.3)
    return submission


@pytest.fixture
def archive(server: Instance, sent: str, tmp_path: Path) -> Path:
    server.storage.write("splits/three--faces/private/manifest.json", b"{}")
    path = tmp_path / "three.zip"
    write(server.database, server.storage, get_settings(), slug="three", path=path)
    return path


def standings(database: Database) -> list[Any]:
    with database.read() as session:
        competitions = session.scalars(select(Competition).order_by(Competition.slug)).all()
        found = [boards.whole_board(session, each, Visibility.PUBLIC) for each in competitions]
    return [[(row.rank, row.entry.team, row.entry.score) for row in board.rows] for board in found]


def test_tasks_go_along(server: Instance, sent: str, archive: Path, elsewhere: Other) -> None:
    brought = elsewhere.read(archive)
    assert brought.receipts == 3
    assert standings(elsewhere.database) == standings(server.database)
    assert elsewhere.storage.read("splits/three--faces/private/manifest.json") == b"{}"
    with elsewhere.database.read() as session:
        parts = session.scalars(select(Submission.id).where(Submission.parent_id == sent)).all()
    assert set(parts) == set(part_ids(server, sent).values())


def test_a_task_alone_is_not_exported(server: Instance, sent: str, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="do this to three"):
        write(server.database, server.storage, get_settings(), slug="three--faces", path=tmp_path / "task.zip")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row | {"state": "final"}, "in the state final"),
        (lambda row: row | {"task_name": "birds"}, "has the task three--faces"),
        (lambda row: None, "does not hold the tasks"),
    ],
)
def test_tasks_that_do_not_fit_are_refused(archive, elsewhere, tmp_path, change, said):
    rows = [json.loads(line) for line in ZipFile(archive).read(ROWS).splitlines()]
    wrong = [change(row) if row["slug"] == "three--faces" else row for row in rows]
    data = "".join(json.dumps(row) + "\n" for row in wrong if row is not None).encode()
    forged = changed(archive, tmp_path / "forged.zip", listed(archive, ROWS, data))
    with pytest.raises(InvalidInput, match=said):
        elsewhere.read(forged)


def test_receipt_of_a_submission_holds_those_of_its_parts(server: Instance, sent: str) -> None:
    with server.database.read() as session:
        whole = session.get_one(Submission, sent)
        session.refresh(whole, ["competition"])
        receipt = receipts.issue(session, get_settings(), whole, Visibility.PUBLIC, is_organiser=True)
    verify(receipt)
    assert {name: part["score"]["final_score"] for name, part in receipt["tasks"].items()} == {
        "faces": 0.1,
        "digits": 0.2,
        "authors": 0.3,
    }
    for part in receipt["tasks"].values():
        verify(part)
        assert part["submission"]["part_of"] == sent
    receipt["tasks"]["faces"]["score"]["final_score"] = 0.9
    with pytest.raises(InvalidInput, match="signature does not fit"):
        verify(receipt)


@pytest.mark.parametrize(("table", "column"), list(RENAMED))
def test_renamed_columns_of_older_archives_are_read(table: str, column: str) -> None:
    (part,) = (part for part in OWN_PARTS if part.name == table)
    assert read_row(part, {"id": 1, column: None}) == {"id": 1, RENAMED[table, column]: None}


def test_unknown_columns_are_left_out() -> None:
    row = {"id": "a", "colour": "red"}
    assert read_row(OWN_PARTS[0], row) == {"id": "a"}
    assert unknown_columns(OWN_PARTS[0], row) == {"competitions.colour"}
