"""A played competition in an archive, archives that were changed, and an instance to bring them to."""

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.admin import competition_edits
from server.archives.exporter import MANIFEST, write
from server.archives.importer import ImportResult, read
from server.config import Settings, get_settings
from server.db import Database
from server.evaluations.results import weights_key
from server.metric_results.metric_results import hash_parameters
from server.models.account import Role
from server.models.evaluation import Disclosure, Evaluation, MetricResult, PrivateScore, RunLog, Shard, ShardAttempt
from server.models.submission import Fault
from server.storage import Storage
from tests.support.instance import Instance

BASE = "/api/v1/competitions/digits"
SPLIT_FILE = "splits/digits/private/manifest.json"


class Other:
    """An instance with a database and its own storage."""

    def __init__(self, url: str, folder: Path) -> None:
        self.settings = Settings(home=folder, database_url=url, storage_url=(folder / "storage").as_uri())
        self.database = Database(url)
        self.storage = Storage(self.settings.resolved_storage_url)

    def read(self, path: Path, *, trusted: Collection[str] = ()) -> ImportResult:
        return read(self.database, self.storage, path, trusted=trusted)


def talk(server: Instance, organiser: dict[str, str], bob: dict[str, str]) -> None:
    """Ask for terms, have them accepted, decide about a person, and answer a question."""
    settings = {"participation": {"terms": "Be fair."}, "reason": "asked for"}
    server.client.patch(BASE, headers=organiser, json=settings)
    server.client.post(f"{BASE}/participation/terms", headers=bob, json={"version": 1})
    server.account("rita")
    decision = {"decision": "refuse", "reason": "not here"}
    server.client.post(f"{BASE}/participants/rita/decision", headers=organiser, json=decision)
    asked = server.client.post(f"{BASE}/questions", headers=bob, json={"text": "Why?"}).json()["id"]
    server.client.put(f"{BASE}/questions/{asked}/answer", headers=organiser, json={"answer": "Because."})


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
    talk(server, headers, bob)
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
