"""A competition goes to another instance, on another kind of database, and is the same there."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from lethe.client.receipts import verify
from lethe.competition.visibility import Visibility
from lethe.errors import Conflict, InvalidInput, NotAuthenticated
from server.accounts import service as accounts
from server.admin import competition_edits
from server.archives.exporter import MANIFEST, write
from server.archives.importer import Brought, read
from server.archives.tables import OWN_PARTS, PEOPLE, rows
from server.config import Settings, get_settings
from server.db import Database
from server.evaluations.kept_weights import is_weights, weights_key
from server.leaderboard import service as boards
from server.metric_results.service import hash_parameters
from server.models.account import Account, Role
from server.models.competition import Competition
from server.models.evaluation import Evaluation, PrivateScore, RunLog, Shard, ShardAttempt
from server.models.leak_budget import Disclosure
from server.models.metric_result import MetricResult
from server.models.submission import Fault, Submission
from server.storage import Storage
from server.submissions import receipts
from tests.support.instance import PASSWORD, Instance

BASE = "/api/v1/competitions/digits"
SPLIT_FILE = "splits/digits/private/manifest.json"


class Other:
    """An instance with a database and its own storage."""

    def __init__(self, url: str, folder: Path) -> None:
        self.settings = Settings(home=folder, database_url=url, storage_url=(folder / "storage").as_uri())
        self.database = Database(url)
        self.storage = Storage(self.settings.resolved_storage_url)

    def read(self, path: Path) -> Brought:
        return read(self.database, self.storage, path)


@pytest.fixture
def elsewhere(migrated_postgres_url: str, tmp_path: Path) -> Iterator[Other]:
    other = Other(migrated_postgres_url, tmp_path / "elsewhere")
    yield other
    other.database.dispose()


@pytest.fixture
def archive(server: Instance, tmp_path: Path) -> Path:
    """A competition that was played to its reveal, in a file."""
    play(server)
    path = tmp_path / "digits.zip"
    write(server.database, server.storage, get_settings(), slug="digits", path=path)
    return path


def play(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=olga, limits={"final_selections": 1, "submissions_per_day": 9})
    ada, bob, eve = (server.participant(name) for name in ("ada", "bob", "eve"))
    sent = [server.submit(headers, message="äöü").json()["id"] for headers in (ada, ada, bob, eve)]
    for submission, score in zip(sent[:3], (0.1, 0.3, 0.1 + 0.2), strict=True):
        server.score(submission, score)
    server.fail(sent[3], Fault.PARTICIPANT)
    asked = server.client.post(f"{BASE}/team/merges", headers=eve, json={"team": "bob"}).json()["id"]
    server.client.post(f"{BASE}/team/merges/{asked}/agree", headers=bob)
    with server.database.write() as session:
        competition_edits.announce(session, competition, title="Hello", text="all", actor=olga)
        for shard in session.scalars(select(Shard)).all():
            shard.result_key = f"evaluations/{shard.evaluation_id}/runs-{shard.first_run:06d}-attempt-1.safetensors"
            shard.result_sha256 = server.storage.write(shard.result_key, shard.evaluation_id.encode())
            server.storage.write(weights_key(shard.result_key), b"weights")
            shard.attempt = 1
            session.add(ShardAttempt(shard_id=shard.id, attempt=1, worker="w", outcome="done"))
        evaluation = session.scalars(select(Evaluation.id)).first()
        session.add(RunLog(evaluation_id=evaluation, run=0, on_public_sample=True, text="printed\x1b"))
        session.add(Disclosure(submission_id=sent[3], evaluation_id=evaluation, bits=0.1))
        session.add(
            MetricResult(
                evaluation_id=evaluation,
                metric_id="klom",
                parameters={"bins": 10},
                parameters_sha256=hash_parameters({"bins": 10}),
                metric_version=1,
                value=0.1 + 0.2,
                table={"median": 0.1},
                notes=["one"],
            )
        )
    server.storage.write(SPLIT_FILE, b"{}")
    server.storage.write("splits/other/private/manifest.json", b"not of this competition")
    headers = server.headers(olga)
    why = {"changed": "host", "reason": "to be discarded"}
    made = server.client.post(f"{BASE}/rejudgings", headers=headers, json=why).json()["id"]
    server.client.post(f"{BASE}/rejudgings/{made}/discard", headers=headers, json={"reason": "it was"})
    server.client.post(f"{BASE}/close", headers=headers)
    server.tick()
    for submission in sent[1:3]:
        server.score(submission, 1 / 3 + len(submission), visibility=Visibility.PRIVATE)
    with server.database.write() as session:
        for score in session.scalars(select(PrivateScore)).all():
            score.epsilon, score.replicates = b"\x00\xff", {"F": [0.1, 0.2]}
    server.tick()
    assert server.client.post(f"{BASE}/reveal", headers=headers).json()["state"] == "final"


def everything(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Return every row of the competition, but for what each instance numbers itself."""
    with database.read() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "digits")).one()
        found = {part.name: list(rows(session, part, competition.id)) for part in (*OWN_PARTS, PEOPLE)}
    for part in OWN_PARTS:
        own = {"shard_id"} | ({"id"} if part.is_numbered else set())
        found[part.name] = [{k: v for k, v in row.items() if k not in own} for row in found[part.name]]
    return found


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
        verify(receipt)
        for own in ("public_key", "signature"):
            del receipt[own]
        del receipt["evaluation"]["seeds_hmac_sha256"]
        for result in receipt["evaluation"]["results"]:
            del result["hmac_sha256"]
    return both[0], both[1], issued


def test_competition_is_the_same_on_another_instance(server: Instance, archive: Path, elsewhere: Other) -> None:
    before = everything(server.database)
    assert all(before.values()), "no part of a competition is left untried"
    brought = elsewhere.read(archive)
    after = everything(elsewhere.database)
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
    elsewhere.read(archive)
    with pytest.raises(Conflict, match="called 'digits'"):
        elsewhere.read(archive)
    with server.database.write() as session:
        session.scalars(select(Competition)).one().slug = "renamed"
    with pytest.raises(Conflict, match="came from here"):
        read(server.database, server.storage, archive)


def test_export_never_writes_over_a_file(server: Instance, archive: Path) -> None:
    with pytest.raises(Conflict, match="exists"):
        write(server.database, server.storage, get_settings(), slug="digits", path=archive)


def changed(archive: Path, target: Path, entries: dict[str, bytes | None]) -> Path:
    """Copy an archive with other contents of some entries; None leaves one out."""
    with ZipFile(archive) as old, ZipFile(target, "w") as new:
        for name in {*old.namelist(), *entries}:
            data = entries[name] if name in entries else old.read(name)
            if data is not None:
                new.writestr(name, data)
    return target


def listed(archive: Path, name: str, data: bytes) -> dict[str, bytes]:
    """Return an entry, and a manifest that vouches for it."""
    manifest = json.loads(ZipFile(archive).read(MANIFEST))
    manifest["entries"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return {name: data, MANIFEST: json.dumps(manifest).encode()}


def without_table(archive: Path, target: Path, table: str) -> Path:
    """Copy an archive as if it had been written before there was a table."""
    manifest = json.loads(ZipFile(archive).read(MANIFEST))
    del manifest["entries"][f"rows/{table}.jsonl"], manifest["rows"][table]
    return changed(archive, target, {f"rows/{table}.jsonl": None, MANIFEST: json.dumps(manifest).encode()})


def test_archive_older_than_metrics_is_read_without_them(archive: Path, elsewhere: Other, tmp_path: Path) -> None:
    elsewhere.read(without_table(archive, tmp_path / "old.zip", "metric_results"))
    found = everything(elsewhere.database)
    assert found["metric_results"] == []
    assert found["public_scores"] != []


def test_archive_without_a_table_that_all_have_is_refused(archive: Path, elsewhere: Other, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no rows/shards"):
        elsewhere.read(without_table(archive, tmp_path / "cut.zip", "shards"))


def test_archive_that_is_not_what_it_says_changes_nothing(
    server: Instance, archive: Path, elsewhere: Other, tmp_path: Path
) -> None:
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
        "a file of another competition": ({**listed(archive, another, b"{}")}, "is no file of digits"),
        "weights of no result": ({**listed(archive, f"files/{nobodys_weights}", b"{}")}, "is no file of digits"),
        "a way out of the storage": ({**listed(archive, way_out, b"{}")}, "is no file of digits"),
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
    with pytest.raises(InvalidInput, match="is no archive"):
        elsewhere.read(tmp_path / "no.zip")
    with elsewhere.database.read() as session:
        assert session.scalars(select(Account)).all() == []
    assert list(elsewhere.storage.keys("splits")) == []


def test_archive_of_a_newer_schema_asks_for_a_newer_program(archive: Path, elsewhere: Other, tmp_path: Path) -> None:
    manifest = json.loads(ZipFile(archive).read(MANIFEST)) | {"schema": "9999"}
    path = changed(archive, tmp_path / "newer.zip", {MANIFEST: json.dumps(manifest).encode()})
    with pytest.raises(Conflict, match="bring it up to date first"):
        elsewhere.read(path)
