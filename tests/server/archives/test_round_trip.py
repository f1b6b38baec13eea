"""A competition goes to another instance, on another kind of database, with all its tasks, and is the same there."""

import hashlib
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from lethe.client.bundle import verify_receipt
from lethe.competition.section import SCHEMA_VERSION
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput
from server.accounts import accounts
from server.archives.exporter import MANIFEST, OWN_PARTS, PEOPLE, RENAMED, read_row, rows, unknown_columns, write
from server.archives.importer import read
from server.competitions.stored_file import stored_file
from server.config import Settings, get_settings
from server.db import Database
from server.errors import Conflict, NotAuthenticated
from server.evaluations.results import is_weights
from server.leaderboard import boards
from server.models.account import Account, Role
from server.models.competition import Competition
from server.models.submission import Submission
from server.submissions import receipts
from tests.server.archives.conftest import SPLIT_FILE, Other, changed, listed
from tests.support.instance import PASSWORD, Instance
from tests.support.tasks import open_tasks, part_ids, score_parts


def everything(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Return every row of the competition, but for what each instance numbers itself."""
    with database.read() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "digits")).one()
        found = {part.name: list(rows(session, part, [competition.id])) for part in (*OWN_PARTS, PEOPLE)}
    for part in OWN_PARTS:
        own = {"shard_id"} | ({"id"} if part.is_numbered else set())
        found[part.name] = [{k: v for k, v in row.items() if k not in own} for row in found[part.name]]
    return found


def with_names(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return rows with people's names in place of their ids, which are others in each instance."""
    names = {row["id"]: row["name"] for row in found["accounts"]}

    def named(row: dict[str, Any]) -> dict[str, Any]:
        return {key: names.get(value, value) if isinstance(value, str) else value for key, value in row.items()}

    return {table: sorted(map(named, rows), key=str) for table, rows in found.items()}


def shown(database: Database, settings: Settings) -> tuple[Any, Any, list[dict[str, Any]]]:
    """Return both boards and every receipt, but for what each instance signs with its own key."""
    with database.read() as session:
        competition = session.scalars(select(Competition)).one()
        both = [boards.whole_board(session, competition, visibility).rows for visibility in Visibility]
        scored = session.scalars(select(Submission).options(joinedload(Submission.competition))).all()
        issued = [
            receipts.issue(session, settings, submission, visibility, is_organiser=True)
            for submission in sorted(scored, key=lambda one: one.id)
            for visibility in Visibility
            if receipts._score(session, submission.id, visibility) is not None
        ]
    for receipt in issued:
        verify_receipt(receipt)
        for own in ("public_key", "signature"):
            del receipt[own]
        del receipt["evaluation"]["seeds_hmac_sha256"]
        for result in receipt["evaluation"]["results"]:
            del result["hmac_sha256"]
    return both[0], both[1], issued


def test_competition_is_the_same_on_another_instance(server: Instance, archive: Path, elsewhere: Other) -> None:
    before = everything(server.database)
    assert all(before.values()), "no part of a competition is left untried"
    brought = elsewhere.read(archive, trusted=[receipts.public_key_text(get_settings())])
    assert brought.is_vouched_for
    after = everything(elsewhere.database)
    assert not {row["id"] for row in after["accounts"]} & {row["id"] for row in before["accounts"]}
    before, after = with_names(before), with_names(after)
    [competition] = after["competitions"]
    assert competition.pop("archive_key") == brought.receipt_key
    assert before["competitions"][0].pop("archive_key") is None
    assert after.pop("audit_events")[:-1] == before.pop("audit_events"), "one event is new: the import"
    assert after == before
    assert shown(elsewhere.database, elsewhere.settings) == shown(server.database, get_settings())
    assert brought.receipts == 5
    with ZipFile(archive) as zipped:
        files = [name.removeprefix("files/") for name in zipped.namelist() if name.startswith("files/")]
    assert SPLIT_FILE in files
    assert any(is_weights(key) for key in files)
    assert not any("other" in name for name in files)
    assert brought.files == len(files)
    for key in files:
        assert elsewhere.storage.read(key) == server.storage.read(key)


def test_people_come_as_placeholders(server: Instance, archive: Path, elsewhere: Other) -> None:
    with elsewhere.database.write() as session:
        accounts.register(session, name="Ada", password=PASSWORD, email="another@example.org")
    brought = elsewhere.read(archive)
    assert list(brought.renamed) == ["ada"], "the other one keeps the name"
    with elsewhere.database.write() as session:
        for name in (brought.renamed["ada"], "bob", "olga"):
            account = accounts.find(session, name)
            assert (account.email, account.role) == (None, Role.PARTICIPANT)
            assert account.disabled_at is not None
            accounts.enable(session, account, actor=None, reason="")
            with pytest.raises(NotAuthenticated):
                accounts.authenticate(session, name=name, password=PASSWORD, client="here")
        accounts.authenticate(session, name="ada", password=PASSWORD, client="here")
    text = archive.read_bytes() + b"".join(ZipFile(archive).read(n) for n in ("rows/accounts.jsonl", MANIFEST))
    assert b"argon2" not in text
    assert b"example.org" not in text


def test_competition_that_is_here_is_not_brought_again(server: Instance, archive: Path, elsewhere: Other) -> None:
    with pytest.raises(Conflict, match="exists"):  # a file is not written over either
        write(server.database, server.storage, get_settings(), slug="digits", path=archive)
    elsewhere.read(archive)
    with pytest.raises(Conflict, match="called 'digits'"):
        elsewhere.read(archive)
    with server.database.write() as session:
        session.scalars(select(Competition)).one().slug = "renamed"
    with pytest.raises(Conflict, match="came from here"):
        read(server.database, server.storage, archive)


def without_table(archive: Path, target: Path, table: str) -> Path:
    """Copy an archive as if it had been written before there was a table."""
    manifest = json.loads(ZipFile(archive).read(MANIFEST))
    del manifest["entries"][f"rows/{table}.jsonl"], manifest["rows"][table]
    return changed(archive, target, {f"rows/{table}.jsonl": None, MANIFEST: json.dumps(manifest).encode()})


def test_archive_is_read_without_tables_that_came_later_and_not_without_others(archive, elsewhere, tmp_path):
    with pytest.raises(InvalidInput, match="has no rows/shards"):
        elsewhere.read(without_table(archive, tmp_path / "cut.zip", "shards"))
    later = ("metric_results", "participants", "competition_texts", "terms_acceptances", "questions")
    for name in later:
        archive = without_table(archive, tmp_path / f"without-{name}.zip", name)
    elsewhere.read(archive)
    found = everything(elsewhere.database)
    assert [found[name] for name in later] == [[]] * len(later)
    assert found["public_scores"] != []


def test_archive_that_is_not_what_it_says_changes_nothing(server, archive, elsewhere, tmp_path):
    receipt = next(name for name in ZipFile(archive).namelist() if name.startswith("receipts/"))
    forged = json.loads(ZipFile(archive).read(receipt)) | {"competition": "another"}
    scores = json.loads(ZipFile(archive).read("rows/public_scores.jsonl").splitlines()[0])
    foreign = json.dumps(scores | {"evaluation_id": "another"}).encode()
    another, way_out = "files/splits/other/public/manifest.json", "files/splits/digits/private/../../../x"
    nobodys_weights = "evaluations/another/runs-000000-attempt-1-weights.safetensors"
    cases: dict[str, tuple[dict[str, bytes | None], str]] = {
        "damaged": ({f"files/{SPLIT_FILE}": b"{ }"}, f"is damaged: files/{SPLIT_FILE}"),
        "cut short": ({f"files/{SPLIT_FILE}": None}, "is incomplete"),
        "no manifest": ({MANIFEST: None}, "is incomplete"),
        "a file of another competition": ({**listed(archive, another, b"{}")}, "is not a file of digits"),
        "weights of no result": ({**listed(archive, f"files/{nobodys_weights}", b"{}")}, "is not a file of digits"),
        "a way out of the storage": ({**listed(archive, way_out, b"{}")}, "is not a file of digits"),
        "a forged receipt": ({**listed(archive, receipt, json.dumps(forged).encode())}, "receipt's signature"),
        "a score of another competition": (
            {**listed(archive, "rows/public_scores.jsonl", foreign)},
            "has public_scores of evaluations that it does not hold",
        ),
        "another format": (
            {MANIFEST: b'{"format": "lethe-competition/9"}'},
            "this program reads 'lethe-competition/1'",
        ),
    }
    for case, (entries, says) in cases.items():
        path = changed(archive, tmp_path / f"{case}.zip", entries)
        with pytest.raises(InvalidInput, match=says):
            elsewhere.read(path)
    (tmp_path / "no.zip").write_bytes(b"digits")
    with pytest.raises(InvalidInput, match="is not an archive"):
        elsewhere.read(tmp_path / "no.zip")
    with elsewhere.database.read() as session:
        assert session.scalars(select(Account)).all() == []
    assert list(elsewhere.storage.keys("splits")) == []


def of_the_next_version(archive: Path, path: Path, *, schema_version: int) -> Path:
    """Write the archive as the next version would: a column, a key of the file, a table and a revision more."""
    zipped = ZipFile(archive)
    manifest = json.loads(zipped.read(MANIFEST)) | {"schema": "9999"}
    entries: dict[str, bytes] = {"rows/of_the_next.jsonl": b'{"id": 1}\n'}
    for name in ("competitions", "submissions"):
        rows = [json.loads(line) | {"of_the_next": 7} for line in zipped.read(f"rows/{name}.jsonl").splitlines()]
        for row in rows if name == "competitions" else ():
            row["config"] |= {"schema_version": schema_version, "of_the_next": {"a": 1}}
            row["config"]["limits"] |= {"energy_wh": 3}
        entries[f"rows/{name}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    for name, data in entries.items():
        manifest["entries"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return changed(archive, path, {**entries, MANIFEST: json.dumps(manifest).encode()})


def test_archive_of_the_next_version_is_read_leniently(archive: Path, elsewhere: Other, tmp_path: Path) -> None:
    newer = of_the_next_version(archive, tmp_path / "newer.zip", schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(Conflict, match="bring it up to date first"):  # it computes otherwise
        elsewhere.read(newer)
    made = elsewhere.read(of_the_next_version(archive, tmp_path / "next.zip", schema_version=SCHEMA_VERSION))
    assert made.left_out == ("competitions.of_the_next", "submissions.of_the_next")
    with elsewhere.database.read() as session:
        competition = session.scalars(select(Competition)).one()
        assert (competition.config["of_the_next"], stored_file(competition).slug) == ({"a": 1}, "digits")


ROWS = "rows/competitions.jsonl"


@pytest.fixture
def sent(server: Instance) -> str:
    """A submission that has a score in each task."""
    open_tasks(server, server.account("olga", Role.ORGANISER))
    submission: str = server.submit(server.participant(), slug="three").json()["id"]
    score_parts(server, submission, faces=0.1, digits=0.2, authors=0.3)
    return submission


@pytest.fixture
def of_tasks(server: Instance, sent: str, tmp_path: Path) -> Path:
    server.storage.write("splits/three--faces/private/manifest.json", b"{}")
    path = tmp_path / "three.zip"
    write(server.database, server.storage, get_settings(), slug="three", path=path)
    return path


def standings(database: Database) -> list[Any]:
    with database.read() as session:
        competitions = session.scalars(select(Competition).order_by(Competition.slug)).all()
        found = [boards.whole_board(session, each, Visibility.PUBLIC) for each in competitions]
    return [[(row.rank, row.entry.team, row.entry.score) for row in board.rows] for board in found]


def test_tasks_go_along(server: Instance, sent: str, of_tasks: Path, elsewhere: Other) -> None:
    brought = elsewhere.read(of_tasks)
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
def test_tasks_that_do_not_fit_are_refused(of_tasks, elsewhere, tmp_path, change, said):
    rows = [json.loads(line) for line in ZipFile(of_tasks).read(ROWS).splitlines()]
    wrong = [change(row) if row["slug"] == "three--faces" else row for row in rows]
    data = "".join(json.dumps(row) + "\n" for row in wrong if row is not None).encode()
    forged = changed(of_tasks, tmp_path / "forged.zip", listed(of_tasks, ROWS, data))
    with pytest.raises(InvalidInput, match=said):
        elsewhere.read(forged)


def test_receipt_of_a_submission_holds_those_of_its_parts(server: Instance, sent: str) -> None:
    with server.database.read() as session:
        whole = session.get_one(Submission, sent)
        session.refresh(whole, ["competition"])
        receipt = receipts.issue(session, get_settings(), whole, Visibility.PUBLIC, is_organiser=True)
    verify_receipt(receipt)
    assert {name: part["score"]["final_score"] for name, part in receipt["tasks"].items()} == {
        "faces": 0.1,
        "digits": 0.2,
        "authors": 0.3,
    }
    for part in receipt["tasks"].values():
        verify_receipt(part)
        assert part["submission"]["part_of"] == sent
    receipt["tasks"]["faces"]["score"]["final_score"] = 0.9
    with pytest.raises(InvalidInput, match="signature does not fit"):
        verify_receipt(receipt)


@pytest.mark.parametrize(("table", "column"), list(RENAMED))
def test_renamed_columns_of_older_archives_are_read(table: str, column: str) -> None:
    (part,) = (part for part in OWN_PARTS if part.name == table)
    assert read_row(part, {"id": 1, column: None}) == {"id": 1, RENAMED[table, column]: None}


def test_unknown_columns_are_left_out() -> None:
    row = {"id": "a", "colour": "red"}
    assert read_row(OWN_PARTS[0], row) == {"id": "a"}
    assert unknown_columns(OWN_PARTS[0], row) == {"competitions.colour"}
