"""What nothing refers to is found and removed; what something refers to, or is young, never is."""

import asyncio
import hashlib
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.competition.sections import Submissions
from server.config import Settings
from server.db import Database, now
from server.errors import QuotaExceeded
from server.maintenance import retention
from server.maintenance.garbage_repository import Garbage
from server.models.account import ApiToken, PasswordReset, Role, WebSession
from server.models.competition import Competition, Team
from server.models.evaluation import RunLog, Shard
from server.models.notification import Delivery, DeliveryState, QueuedEmail
from server.models.participation import Invitation
from server.models.submission import Submission
from server.storage import Storage, content_key
from server.submissions import submissions
from server.submissions.upload_check import Upload, check_and_store
from tests.server.evaluations.conftest import Submit, competition, database, sent, submit
from tests.support.instance import GOOD_CODE, Instance
from tests.support.web import Visitor

__all__ = ["competition", "database", "sent", "submit"]


@pytest.fixture
def storage(tmp_path: Path, database: Database, submit: Submit) -> Storage:
    """Three files that rows refer to and three that none does."""
    storage = Storage((tmp_path / "storage").as_uri())
    submission = submit("a")
    with database.write() as session:
        shard = session.query(Shard).order_by(Shard.id).first()
        assert shard is not None
        shard.result_key = "evaluations/e/runs-0-attempt-2"
    for key in (
        content_key(submission.content_sha256),
        content_key("f" * 64),
        "evaluations/e/runs-0-attempt-1",
        "evaluations/e/runs-0-attempt-2",
        "splits/tiny/public/visible/forget.safetensors",
        "splits/removed/public/manifest.json",
    ):
        storage.write(key, b"123")
    return storage


def found(database: Database, storage: Storage, *, keep_hours: float = 0, delete: bool = False) -> set[str]:
    return {one.file.key for one in retention.collect(database, storage, keep_hours=keep_hours - 0.01, delete=delete)}


GARBAGE = {content_key("f" * 64), "evaluations/e/runs-0-attempt-1", "splits/removed/public/manifest.json"}


def test_unreferenced_files_are_listed_then_removed_and_nothing_else(database: Database, storage: Storage) -> None:
    def present() -> set[str]:
        return {key for prefix in ("submissions", "evaluations", "splits") for key in storage.keys(prefix)}

    before = present()
    assert found(database, storage) == GARBAGE
    assert found(database, storage, keep_hours=1, delete=True) == set(), "they are young"
    assert present() == before
    assert found(database, storage, delete=True) == GARBAGE
    assert present() == before - GARBAGE


@pytest.mark.parametrize("result", ["-attempt-10.safetensors", "-attempt-10-0123456789abcdef.safetensors"])
def test_weights_are_removed_with_the_outputs_that_they_belong_to(database, storage, *, result):
    runs = "evaluations/e/runs-000000"
    for number in (1, 2, 10):
        storage.write(f"{runs}-attempt-{number}-weights.safetensors", b"123")
    storage.write(f"{runs}{result}", b"123")
    with database.write() as session:
        session.query(Shard).order_by(Shard.id).first().result_key = f"{runs}{result}"  # type: ignore[union-attr]
    garbage = {f"{runs}-attempt-{number}-weights.safetensors" for number in (1, 2)}
    for delete in (False, True):
        assert {key for key in found(database, storage, delete=delete) if key.startswith(runs)} == garbage
    with database.write() as session:
        session.query(Shard).update({Shard.result_key: None})
    assert f"{runs}-attempt-10-weights.safetensors" in found(database, storage, delete=True)


def test_weights_are_looked_for_again_before_they_are_removed(database, storage, monkeypatch):
    """Their shard ends between the list and the removal."""
    weights = "evaluations/e/runs-000000-attempt-3-weights.safetensors"
    storage.write(weights, b"123")
    listing = retention.find_garbage

    def then_ended(session: Session, *arguments: Any, **options: Any) -> list[Garbage]:
        found = list(listing(session, *arguments, **options))
        with database.write() as other:
            other.query(Shard).update({Shard.result_key: "evaluations/e/runs-000000-attempt-3.safetensors"})
        return found

    monkeypatch.setattr(retention, "find_garbage", then_ended)
    assert weights not in found(database, storage, delete=True)
    assert storage.exists(weights)


@pytest.mark.parametrize("how", ["a row names it", "it is written again"])
def test_delete_looks_again_before_it_removes(database, storage, monkeypatch, *, how):
    """Between the list and the removal somebody sends the same content once more."""
    listing = retention.find_garbage

    def then_sent(session: Session, *arguments: Any, **options: Any) -> list[Garbage]:
        found = list(listing(session, *arguments, **options))
        if how == "it is written again":
            os.utime(storage.local_folder(content_key("f" * 64)), (time.time() + 60,) * 2)
            return found
        with database.write() as other:
            other.query(Submission).update({Submission.content_sha256: "f" * 64})
        return found

    monkeypatch.setattr(retention, "find_garbage", then_sent)
    assert found(database, storage, delete=True) == GARBAGE - {content_key("f" * 64)}
    assert storage.exists(content_key("f" * 64))


def test_content_sent_during_its_removal_is_put_back(database, storage, monkeypatch):
    """Its row commits after the last look at the rows, and before the file is removed."""
    remove = Storage.remove

    def sent_meanwhile(self: Storage, key: str) -> None:
        if key == content_key("f" * 64):
            with database.write() as other:
                other.query(Submission).update({Submission.content_sha256: "f" * 64})
        remove(self, key)

    monkeypatch.setattr(Storage, "remove", sent_meanwhile)
    assert found(database, storage, delete=True) == GARBAGE - {content_key("f" * 64)}
    assert storage.read(content_key("f" * 64)) == b"123"


@pytest.mark.parametrize("way", ["api", "page"])
def test_content_removed_before_its_row_committed_is_stored_again(server, monkeypatch, *, way):
    """The removal began before the upload wrote its file, and ends after that."""
    accept = submissions.accept

    def removed_meanwhile(session: Session, *arguments: Any) -> Any:
        for key in list(server.storage.keys("submissions")):
            server.storage.remove(key)
        return accept(session, *arguments)

    monkeypatch.setattr(submissions, "accept", removed_meanwhile)
    server.competition()
    account = server.account("ada")
    if way == "api":
        answer = server.submit(server.headers(account))
        assert answer.status_code == 201
    else:
        visitor = Visitor(server)
        visitor.log_in("ada")
        as_form = {"message": (None, "")}  # in parts, as the page's form is sent
        visitor.post("/competitions/digits/submit", {"code": GOOD_CODE.decode()}, files=as_form)
    with server.database.read() as session:
        sha256 = session.scalars(select(Submission.content_sha256)).one()
    assert hashlib.sha256(server.storage.read(content_key(sha256))).hexdigest() == sha256


def test_only_old_logs_expire(database: Database, competition: Competition, submit: Submit) -> None:
    submit("a")
    with database.write() as session:
        evaluation_id = session.query(Shard).first().evaluation_id  # type: ignore[union-attr]
        for days in (1, 100):
            session.add(
                RunLog(
                    evaluation_id=evaluation_id,
                    run=days,
                    on_public_sample=True,
                    text="",
                    created_at=now() - timedelta(days=days),
                )
            )
    with database.write() as session:
        assert retention.expire(session, Settings(keep_logs_days=0), at=now()).run_logs == 0
        assert retention.expire(session, Settings(keep_logs_days=90), at=now()).run_logs == 1
        assert [row.run for row in session.query(RunLog)] == [1]


def test_only_ended_log_ins_tokens_and_links_are_removed(server: Instance) -> None:
    ada = server.account("ada")
    at = now()
    with server.database.write() as session:
        session.add(Team(id="t", competition_id=server.competition().id, name="t", name_key="t", leader_id=ada.id))
        session.flush()
        for name, expires_in, ended in (("open", 1, None), ("ended", 1, at - timedelta(1)), ("expired", -1, None)):
            whose = {"id": name, "account_id": ada.id, "token_hash": name, "expires_at": at + timedelta(expires_in)}
            session.add(WebSession(**whose, revoked_at=ended))
            session.add(ApiToken(**whose, label="", revoked_at=ended))
            session.add(PasswordReset(**whose, ended_at=ended))
            session.add(Invitation(**whose, team_id="t", created_by=ada.id, ended_at=ended))
    with server.database.write() as session:
        session.add(ApiToken(id="for ever", account_id=ada.id, token_hash="for ever", label=""))
        expired = retention.expire(session, Settings(keep_logs_days=90), at=at)
        assert (expired.web_sessions, expired.api_tokens, expired.links) == (2, 2, 4)
        for table in (WebSession, PasswordReset, Invitation):
            assert list(session.scalars(select(table.id))) == ["open"]
        assert set(session.scalars(select(ApiToken.id))) == {"open", "for ever"}


def test_only_sent_or_given_up_messages_are_removed(server: Instance) -> None:
    competition = server.competition()
    at = now()
    with server.database.write() as session:
        for state in DeliveryState:
            for days in (29, 31):
                row = {"id": f"{state.value} {days}", "state": state.value, "created_at": at - timedelta(days)}
                session.add(QueuedEmail(**row, address="ada@example.org", subject="", body=""))
                session.add(Delivery(**row, competition_id=competition.id, event="submission.scored", payload={}))
    with server.database.write() as session:
        assert retention.expire(session, Settings(keep_logs_days=90), at=at).messages == 4
        for table in (QueuedEmail, Delivery):
            kept = set(session.scalars(select(table.id)))
            assert kept == {"waiting 29", "waiting 31", "sent 29", "failed 29"}


def test_command_counts_rows_first_and_removes_them_when_told(server: Instance) -> None:
    with server.database.write() as session:
        old = now() - timedelta(days=31)
        session.add(QueuedEmail(address="ada@example.org", subject="", body="", state="sent", created_at=old))
    for words, said, left in (
        (["gc"], "1 messages sent or given up", 1),
        (["gc", "--delete"], "1 messages sent or given up", 0),
        (["gc"], "0 messages sent or given up", 0),
    ):
        told = CliRunner().invoke(build_app(), words)
        assert told.exit_code == 0
        assert said in " ".join(told.stdout.split())
        with server.database.read() as session:
            assert session.query(QueuedEmail).count() == left


def test_content_that_the_quota_refused_is_removed(server: Instance) -> None:
    """Of two uploads at once both may be stored before one is refused; then nothing names its content."""
    organiser = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=organiser, limits={"submissions_per_day": 1})
    ada = server.account("ada")
    refused = GOOD_CODE + b"# one too many\n"
    rules = Submissions()
    uploads = [
        asyncio.run(check_and_store(server.storage, Upload("a.py", code, "", now()), account_id=ada.id, rules=rules))
        for code in (GOOD_CODE, refused)
    ]
    with server.database.write() as session:
        submissions.accept(session, competition, ada, uploads[0])
    with pytest.raises(QuotaExceeded), server.database.write() as session:
        submissions.accept(session, competition, ada, uploads[1])
    key = content_key(hashlib.sha256(refused).hexdigest())
    assert found(server.database, server.storage, keep_hours=24, delete=True) == set(), "it may be on its way to a row"
    assert found(server.database, server.storage, delete=True) == {key}
    assert list(server.storage.keys("submissions")) == [content_key(hashlib.sha256(GOOD_CODE).hexdigest())]


def test_content_that_was_cancelled_before_it_ran_is_removed(server: Instance) -> None:
    server.competition()
    headers = server.participant()
    kept, gone = GOOD_CODE, GOOD_CODE + b"# cancelled\n"
    server.submit(headers, kept)
    for code in (kept, gone):
        submission = server.submit(headers, code).json()["id"]
        assert server.client.post(f"/api/v1/submissions/{submission}/cancel", headers=headers).status_code == 200
    key = content_key(hashlib.sha256(gone).hexdigest())
    assert found(server.database, server.storage, delete=True) == {key}
    assert server.client.get(f"/api/v1/submissions/{submission}", headers=headers).status_code == 200
    assert server.client.get(f"/api/v1/submissions/{submission}/code", headers=headers).status_code == 404
