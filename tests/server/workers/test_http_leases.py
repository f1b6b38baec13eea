"""Remote workers: the same queue, leases and attempts as for all others, and nothing of any other competition."""

import json
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm.exc import StaleDataError

from server.api.workers.router import FailureIn
from server.db import clock, database_time
from server.evaluations import lease_reaper
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.models.competition import Competition, Split
from server.models.evaluation import RunLog, Shard, ShardAttempt, ShardKind
from server.models.submission import Submission
from server.submissions import submission_repository
from tests.server.workers.conftest import SEED, Hosted, RemoteWorker, outputs, sha256, store_splits, submit, to_runs
from tests.support.instance import GOOD_CODE
from worker.remote.client import RETRYABLE_STATUS, SHARD


def stage(hosted: Hosted, submission_id: str) -> str:
    with hosted.server.database.read() as session:
        return session.get_one(Submission, submission_id).stage


def expire(hosted: Hosted) -> None:
    """Let every lease be over, and be seen to be."""
    with hosted.server.database.write() as session:
        session.execute(update(Shard).where(Shard.state == "leased").values(lease_expires_at=database_time(-1)))
        lease_reaper.sweep(session, clock(session), max_attempts=3)


def test_worker_takes_a_submission_from_smoke_run_to_scoring(hosted_both: Hosted) -> None:
    submission, worker = submit(hosted_both), hosted_both.worker(trusted=True)
    kinds = []
    while (shard := worker.claim()) is not None:
        kinds.append(shard["kind"])
        assert worker.step("PUT", "controls", json={"controls": {"seccomp": True}}).status_code == 204
        assert worker.step("PUT", "lease", json={"runs_done": 1}).json() == {"held": True}
        assert worker.finish().json() == {"held": True}
    assert kinds == ["smoke", "runs", "runs"]
    assert stage(hosted_both, submission) == "scoring"
    with hosted_both.server.database.read() as session:
        assert [log.text for log in session.scalars(select(RunLog))] == ["hello"]
        for shard in session.scalars(select(Shard).where(Shard.kind == "runs")):
            data = hosted_both.server.storage.read_verified(shard.result_key or "", shard.result_sha256 or "")
            assert data == outputs(shard.n_runs)
            assert shard.wall_time_s == 0.5 * shard.n_runs
        attempts = session.scalars(select(ShardAttempt)).all()
        assert {attempt.outcome for attempt in attempts} == {"done"}
        assert all(attempt.controls == {"seccomp": True} for attempt in attempts)


def test_only_files_of_the_claimed_shard_are_served(hosted: Hosted) -> None:
    submit(hosted)
    worker = hosted.worker()
    shard = to_runs(worker)
    assert worker.file(shard["content_sha256"]).content == GOOD_CODE
    manifest = worker.file(shard["manifest_sha256"]).content
    assert sha256(manifest) == shard["manifest_sha256"]
    files = json.loads(manifest)["files"]
    assert set(files) == {
        "visible/forget.safetensors",
        "sample/forget.safetensors",
        "hidden/test.safetensors",
        "hidden/originals/models-00000.safetensors",
    }
    for name, record in files.items():
        found = worker.file(record["sha256"])
        assert found.status_code == 200
        assert sha256(found.content) == record["sha256"], name
    for secret in (b"digits/public: retrained outputs", b"digits/public: oracle outputs", b"digits/private: test set"):
        assert worker.file(sha256(secret)).status_code == 404
    assert str(SEED) not in json.dumps(shard) + manifest.decode()
    assert not {"splits", "dataset"} & shard["competition"].keys()
    assert json.loads(manifest)["fingerprint"] == ""
    assert worker.step("POST", "hand-over", json={"runs_done": 0}).json() == {"held": True}
    assert worker.file(shard["content_sha256"]).status_code == 404, "it is no longer held"


def test_worker_claims_nothing_of_another_competition(hosted: Hosted) -> None:
    other = hosted.server.competition("elsewhere")
    store_splits(hosted.server, other)
    submit(hosted, slug="elsewhere")
    worker = hosted.worker()
    assert worker.claim() is None
    mine = submit(hosted, "otto")
    assert (worker.claim() or {})["submission_id"] == mine


def test_public_only_token_gets_no_private_shard(hosted: Hosted) -> None:
    submission = submit(hosted)
    public, whole = hosted.worker(public_only=True), hosted.worker("host-5678-abcd")
    with hosted.server.database.write() as session:
        private = session.scalars(select(Split).where(Split.visibility == "private")).first()
        assert private is not None
        session.execute(update(Shard).where(Shard.competition_id == private.competition_id).values(split_id=private.id))
    assert public.claim() is None
    assert (whole.claim() or {})["submission_id"] == submission


def test_shard_is_closed_to_other_workers(hosted: Hosted) -> None:
    submit(hosted)
    first, second = hosted.worker(), hosted.worker("host-5678-abcd")
    to_runs(first)
    second.held = first.held
    for method, step, body in (
        ("PUT", "lease", {"json": {"runs_done": 1}}),
        ("PUT", "controls", {"json": {"controls": {}}}),
        ("PUT", "result", {"content": outputs(first.held["n_runs"])}),
        ("POST", "hand-over", {"json": {"runs_done": 0}}),
        ("POST", "give-back", {"json": {"reason": "no"}}),
        ("POST", "failure", {"json": {"error_class": "exception", "message": "no", "run": 0}}),
        ("POST", "over-time", {"json": {"runs_done": 0}}),
        ("GET", f"files/{first.held['content_sha256']}", {}),
    ):
        assert second.step(method, step, **body).status_code == 404, step
    assert first.step("PUT", "lease", json={"runs_done": 1}).json() == {"held": True}


def test_repeated_claim_returns_the_same_shard_whole(hosted: Hosted) -> None:
    submit(hosted)
    worker = hosted.worker()
    first = worker.claim() or {}
    assert set(first) == set(ClaimedShard.__dataclass_fields__)
    assert worker.claim() == first
    with hosted.server.database.read() as session:
        assert len(session.scalars(select(ShardAttempt)).all()) == 1


def test_steps_sent_twice_count_once(hosted: Hosted) -> None:
    submission, worker = submit(hosted), hosted.worker(trusted=True)
    while worker.claim() is not None:
        assert worker.finish().json() == {"held": True}
        assert worker.finish().json() == {"held": True}
    assert stage(hosted, submission) == "scoring"
    with hosted.server.database.read() as session:
        assert len(session.scalars(select(RunLog)).all()) == 1
        assert [attempt.outcome for attempt in session.scalars(select(ShardAttempt))] == ["done"] * 3


def test_zombies_result_is_refused_and_its_heirs_counts(hosted_both: Hosted) -> None:
    submit(hosted_both)
    zombie, heir = hosted_both.worker(), hosted_both.worker("host-5678-abcd")
    shard = to_runs(zombie)
    expire(hosted_both)
    taken = heir.claim()
    while taken and taken["shard_id"] != shard["shard_id"]:
        heir.finish()
        taken = heir.claim()
    assert taken is not None
    assert taken["attempt"] == shard["attempt"] + 1
    assert zombie.step("PUT", "lease", json={"runs_done": 2}).json() == {"held": False}
    assert zombie.finish().json() == {"held": False}
    assert heir.finish().json() == {"held": True}
    with hosted_both.server.database.read() as session:
        closed = session.get_one(Shard, shard["shard_id"])
        assert f"attempt-{taken['attempt']}" in (closed.result_key or "")
    kept = list(hosted_both.server.storage.keys("evaluations"))
    assert not any(f"attempt-{shard['attempt']}-" in key and "000000" in key for key in kept)


def test_revocation_refuses_calls_and_frees_the_shard(hosted_both: Hosted) -> None:
    submission = submit(hosted_both)
    token = hosted_both.token()
    worker, other = RemoteWorker(hosted_both.server, token["token"]), hosted_both.worker("host-5678-abcd", trusted=True)
    worker.register()
    shard = to_runs(worker)
    assert hosted_both.revoke(token["id"]).status_code == 204
    assert worker.step("PUT", "lease", json={"runs_done": 1}).status_code == 401
    assert worker.finish().status_code == 401
    assert worker.file(shard["content_sha256"]).status_code == 401
    finished = []
    while (taken := other.claim()) is not None:
        finished.append((taken["shard_id"], taken["failed_attempts"]))
        other.finish()
    assert (shard["shard_id"], 0) in finished
    assert stage(hosted_both, submission) == "scoring"


WRONG_ARRAYS: tuple[dict[str, Any], ...] = (
    {"confidences": None},
    {"extra": np.zeros(2)},
    {"confidences": np.zeros((2, 9))},
    {"confidences": np.zeros((2, 10), dtype="float32")},
    {"confidences": np.full((2, 10), float("nan"))},
    {"retain_accuracy": np.full(2, 1.5)},
    {"wall_time_s": np.full(2, -1.0)},
    {"class_accuracy": np.full((2, 2, 3), 7.0, dtype="float32")},
    {"class_accuracy": np.zeros((2, 3), dtype="float32")},
)


def test_result_of_another_form_is_refused_and_the_shard_stays(hosted: Hosted) -> None:
    submit(hosted)
    worker = hosted.worker()
    to_runs(worker)
    for changes in WRONG_ARRAYS:
        refused = worker.step("PUT", "result", content=outputs(2, **changes))
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "result"), changes
    assert worker.step("PUT", "result", content=b"not a file").status_code == 422
    assert worker.step("PUT", "result", content=bytes(1 << 20)).status_code == 413
    assert list(hosted.server.storage.keys("evaluations")) == []
    assert worker.finish().json() == {"held": True}


def test_smoke_run_has_no_result_and_runs_do_not_merely_pass(hosted: Hosted) -> None:
    submit(hosted)
    worker = hosted.worker()
    worker.claim()
    assert worker.step("PUT", "result", content=outputs(1)).status_code == 409
    worker.finish()
    worker.claim()
    assert worker.step("POST", "passed", json={"wall_time_s": 1.0}).status_code == 409


def test_failure_of_the_code_ends_the_submission(hosted: Hosted) -> None:
    submission, worker = submit(hosted), hosted.worker(trusted=True)
    to_runs(worker)
    failure = {"error_class": "exception", "message": "ValueError", "run": 1, "runs_done": 1}
    failure |= {"logs": [{"run": 1, "text": "trace\x00back"}]}
    assert worker.step("POST", "failure", json=failure).json() == {"held": True}
    assert worker.step("POST", "failure", json=failure).json() == {"held": True}
    assert stage(hosted, submission) == "failed"
    with hosted.server.database.read() as session:
        assert [log.text for log in session.scalars(select(RunLog).where(RunLog.run == 1))] == ["traceback"]
    assert worker.claim() is None


def test_over_time_ends_the_evaluation_only_when_its_time_is_up(hosted: Hosted) -> None:
    submission, worker = submit(hosted), hosted.worker(trusted=True)
    to_runs(worker)
    assert worker.step("POST", "over-time", json={"runs_done": 0}).json() == {"held": False}
    lease = worker.step("PUT", "lease", json={"runs_done": 1, "wall_time_s": 1e6})
    assert lease.json() == {"held": False}
    assert worker.step("POST", "over-time", json={"runs_done": 1}).json() == {"held": True}
    assert stage(hosted, submission) == "failed"


def test_worker_that_fits_no_split_is_refused_with_every_reason(hosted: Hosted) -> None:
    with hosted.server.database.write() as session:
        session.execute(update(Split).values(device="cuda", versions={"torch": "2.13.0+cu130"}))
    worker = RemoteWorker(hosted.server, hosted.token()["token"])
    refused = worker.register()
    assert refused.status_code == 409
    reasons = [error["message"] for error in refused.json()["errors"]]
    assert len(reasons) == 2
    assert all("was prepared on cuda, this worker computes on cpu" in reason for reason in reasons)
    assert worker.register(device="cuda").status_code == 200
    assert (
        "torch 2.13.0+cu130, this worker has 2.9.1" in worker.register(device="cuda", versions={"torch": "2.9.1"}).text
    )


def test_worker_that_no_longer_fits_gets_nothing_and_the_reason(hosted: Hosted) -> None:
    submit(hosted)
    worker = hosted.worker()
    with hosted.server.database.write() as session:
        session.execute(update(Split).values(device="cuda"))
    answer = worker.call("POST", "/claim").json()
    assert answer["shard"] is None
    assert len(answer["refusals"]) == 2


def test_one_token_cannot_fill_the_table_of_workers(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.workers.shard_steps.MAX_WORKERS", 2)
    first = hosted.worker("host-0001")
    names = ("host-0002", "host-0003", "host-0001")
    answers = [RemoteWorker(hosted.server, first.token, name).register().status_code for name in names]
    assert answers == [200, 409, 200]


@pytest.mark.parametrize("state", ["draining", "cooling", "quarantined"])
def test_worker_out_of_service_gets_no_shards_until_it_registers(hosted: Hosted, state: str) -> None:
    submit(hosted)
    worker = hosted.worker()
    told = {"state": state, "detail": "no space left"}
    assert worker.call("PUT", "/state", json=told).status_code == 204
    assert worker.claim() is None
    worker.register()
    assert worker.claim() is not None


def test_unregistered_worker_is_told_to_register(hosted: Hosted) -> None:
    worker = RemoteWorker(hosted.server, hosted.token()["token"])
    answer = worker.call("POST", "/claim")
    assert (answer.status_code, "register first" in answer.text) == (404, True)


def test_every_part_of_a_failure_can_be_sent() -> None:
    assert set(FailureIn.model_fields) - {"runs_done", "logs"} == set(ShardFailure.__dataclass_fields__)


def test_answers_of_a_smoke_run_are_checked_and_stored_as_its_result(hosted: Hosted) -> None:
    submission, worker = submit(hosted), hosted.worker(trusted=True)
    worker.claim()
    answers = {"questions_sha256": "0" * 64, "answers": ["In Rome\x1b[2J"]}
    for changes in ({"questions_sha256": "x"}, {"answers": ["a"] * 21}, {"answers": 1}):
        refused = worker.step("POST", "passed", json={"wall_time_s": 1.0, "answers": answers | changes})
        assert refused.status_code == 422, changes
    for _ in range(2):
        assert worker.step("POST", "passed", json={"wall_time_s": 1.0, "answers": answers}).json() == {"held": True}
    (key,) = hosted.server.storage.keys("evaluations")
    assert "/sample-attempt-1-" in key
    assert json.loads(hosted.server.storage.read(key)) == answers | {"answers": ["In Rome\ufffd[2J"]}
    with hosted.server.database.read() as session:
        smoke = session.scalars(select(Shard).where(Shard.kind == ShardKind.SMOKE.value)).one()
        assert (smoke.result_key, smoke.wall_time_s) == (key, 1.0)
        assert submission_repository.public_sample_result(session, submission) == (key, smoke.result_sha256)
    worker.claim()
    assert worker.held["kind"] == "runs"


def test_step_that_meets_another_at_once_may_be_tried_again(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is answered 409 ends for good."""

    def fail(*_args: object, **_values: object) -> None:
        raise StaleDataError("1 row expected, 0 found")

    worker = hosted.worker()
    monkeypatch.setattr("server.workers.shard_steps.set_state", fail)
    answer = worker.call("PUT", "/state", json={"state": "draining"})
    assert answer.status_code in RETRYABLE_STATUS
    assert int(answer.headers["Retry-After"]) > 0


def test_next_version_and_this_one_work_on_one_competition(hosted: Hosted) -> None:
    """The next version has migrated the database and made the competition; a worker of each takes a half of the runs.

    The next one's worker sends keys that this server does not know; this one's is told keys that it does not know.
    """
    with hosted.server.database.write() as session:
        for table in ("submissions", "evaluations", "shards", "shard_attempts", "workers", "splits", "competitions"):
            session.execute(text(f"ALTER TABLE {table} ADD COLUMN of_the_next INTEGER DEFAULT 7 NOT NULL"))
        row = session.get_one(Competition, hosted.competition.id)
        row.config = {**row.config, "of_the_next": 1, "limits": {**row.config["limits"], "of_the_next": 2}}
    submission = submit(hosted)
    newer, older = hosted.worker(trusted=True), hosted.worker("host-5678-abcd", trusted=True)
    assert newer.register(of_the_next={"gpu": 1}).status_code == 200
    taken = []
    while (shard := (worker := (newer, older)[len(taken) % 2]).claim()) is not None:
        added = {"of_the_next": 3} if worker is newer else {}
        told = shard | {"of_the_next": 4, "competition": shard["competition"] | {"of_the_next": 5}}
        read = SHARD.validate_python(told, extra="ignore")
        taken.append(read.kind)
        assert worker.step("PUT", "controls", json={"controls": {}} | added).status_code == 204
        assert worker.step("PUT", "lease", json={"runs_done": 1} | added).json() == {"held": True}
        if read.kind is ShardKind.RUNS and len(taken) == 2:  # it comes back, and goes to another
            assert worker.step("POST", "give-back", json={"reason": "no disk"} | added).json() == {"held": True}
            continue
        if read.kind is ShardKind.SMOKE:
            log = {"run": 0, "text": "hello"} | added
            body = {"wall_time_s": 1.0, "logs": [log]} | added
            assert worker.step("POST", "passed", json=body).json() == {"held": True}
        else:
            assert worker.finish().json() == {"held": True}
    assert taken == [ShardKind.SMOKE, *[ShardKind.RUNS] * 3]
    assert stage(hosted, submission) == "scoring"
