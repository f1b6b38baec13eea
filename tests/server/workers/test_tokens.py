"""Worker tokens: shown once, stored as a hash, good for one competition's worker routes, refused once revoked."""

from datetime import timedelta

from sqlalchemy import select, update

from server.accounts.passwords import digest
from server.db import now
from server.models.account import Account, AuditEvent
from server.models.worker import WorkerToken
from tests.server.workers.conftest import Hosted, RemoteWorker

LIST = "/api/v1/competitions/digits/worker-tokens"


def test_token_is_shown_once_and_stored_as_a_hash(hosted: Hosted) -> None:
    made = hosted.token(public_only=True, expires_in_days=3)
    assert made["token"].startswith("lethe_worker_")
    with hosted.server.database.read() as session:
        row = session.scalars(select(WorkerToken)).one()
    assert row.token_hash == digest(made["token"])
    assert timedelta(days=2.9) < row.expires_at - now() <= timedelta(days=3)
    listed = hosted.server.client.get(LIST, headers=hosted.organiser).json()
    assert [token["name"] for token in listed] == ["gpu room"]
    assert "token" not in listed[0]


def test_making_and_revoking_are_in_the_audit_log(hosted: Hosted) -> None:
    made = hosted.token()
    assert hosted.revoke(made["id"]).status_code == 204
    assert hosted.revoke(made["id"]).status_code == 204  # again: nothing more happens
    with hosted.server.database.read() as session:
        mine = AuditEvent.action.startswith("worker_token.")
        events = session.scalars(select(AuditEvent).where(mine).order_by(AuditEvent.id)).all()
    assert [(event.action, event.actor, event.subject) for event in events] == [
        ("worker_token.issued", "olga", made["id"]),
        ("worker_token.revoked", "olga", made["id"]),
    ]
    assert made["token"] not in str([event.data for event in events])


def test_revoked_expired_and_foreign_tokens_are_refused_alike(hosted: Hosted) -> None:
    worker, expired = hosted.worker(), hosted.worker("host-5678-abcd")
    of_disabled = hosted.worker("host-9999-abcd")
    person = RemoteWorker(hosted.server, hosted.server.participant("pia")["Authorization"].removeprefix("Bearer "))
    unknown = RemoteWorker(hosted.server, "lethe_worker_" + "x" * 43)
    assert worker.call("POST", "/claim").status_code == 200
    with hosted.server.database.write() as session:
        ids = session.scalars(select(WorkerToken.id).order_by(WorkerToken.created_at)).all()
        session.execute(update(WorkerToken).where(WorkerToken.id == ids[1]).values(expires_at=now()))
    listed = hosted.server.client.get(LIST, headers=hosted.organiser).json()
    assert [token["last_seen_at"] is not None for token in listed].count(True) == 1, "of the one that asked"
    hosted.revoke(ids[0])
    for refused in (worker, expired, person, unknown):
        answer = refused.call("POST", "/claim")
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:lethe:problem:not-authenticated")
    assert of_disabled.call("POST", "/claim").status_code == 200
    with hosted.server.database.write() as session:
        session.execute(update(Account).where(Account.name == "olga").values(disabled_at=now()))
    assert of_disabled.call("POST", "/claim").status_code == 401


def test_organiser_sees_the_workers_and_why_splits_refuse_them(hosted: Hosted) -> None:
    hosted.worker()
    refused = RemoteWorker(hosted.server, hosted.token()["token"], "small-1234")
    assert refused.register(memory_mib=1).status_code == 409
    found = hosted.server.client.get("/api/v1/competitions/digits/workers", headers=hosted.organiser).json()
    assert {worker["name"].split("/")[1]: len(worker["refusals"]) for worker in found} == {
        "host-1234-abcd": 0,
        "small-1234": 2,
    }
