"""Failures on the public sample do not count against the quota, so often a day; it is shown as it is enforced."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from server.db import now
from server.evaluations import evaluation_repository, leases, results
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.models.evaluation import Evaluation, Shard, ShardKind
from server.models.submission import Fault, Submission
from tests.support.instance import Instance
from tests.support.leases import claim, close

Headers = dict[str, str]


@pytest.fixture
def two_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FREE_SAMPLE_FAILURES", 2)


def fail(server: Instance, shard: ClaimedShard, *, fault: Fault = Fault.PARTICIPANT) -> None:
    failure = ShardFailure(fault=fault, error_class="exception", message="it raised", run=0)
    server.database.retrying(lambda session: leases.fail(session, shard, failure, runs_done=0))


def fail_on_sample(server: Instance, headers: Headers) -> Any:
    """Send a submission that fails in its smoke run. Return it as its team sees it."""
    submission = server.submit(headers).json()["id"]
    shard = claim(server.database)
    assert (shard.submission_id, shard.kind) == (submission, ShardKind.SMOKE)
    fail(server, shard)
    return server.client.get(f"/api/v1/submissions/{submission}", headers=headers).json()


def quota(server: Instance, headers: Headers) -> Any:
    return server.client.get("/api/v1/competitions/digits/quota", headers=headers).json()


def test_failure_on_the_sample_does_not_count(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 1, "submissions_total": 1})
    ada = both.participant()
    shown = fail_on_sample(both, ada)
    assert (shown["stage"], shown["refunded"]) == ("failed", True)
    left = quota(both, ada)
    assert (left["remaining"], left["remaining_total"]) == (1, 1)
    assert left["free_failures_left"] == results.FREE_SAMPLE_FAILURES - 1
    assert both.submit(ada).status_code == 201


def test_only_so_many_failures_a_day_are_free(both: Instance, two_free: None) -> None:
    both.competition(limits={"submissions_per_day": 2})
    ada, eve = both.participant("ada"), both.participant("eve")
    failed = [fail_on_sample(both, ada) for _ in range(4)]
    assert [each["refunded"] for each in failed] == [True, True, False, False]
    assert (quota(both, ada)["free_failures_left"], quota(both, ada)["remaining"]) == (0, 0)
    assert both.submit(ada).status_code == 429
    assert fail_on_sample(both, eve)["refunded"], "another team's count is its own"
    with both.database.write() as session:
        for each in failed:
            session.get_one(Submission, each["id"]).received_at = now() - timedelta(days=1)
    assert fail_on_sample(both, ada)["refunded"], "the next day"


@pytest.mark.parametrize("kind", [ShardKind.RUNS, ShardKind.CHECK])
def test_failure_on_hidden_data_counts(both: Instance, kind: ShardKind) -> None:
    both.competition(limits={"submissions_per_day": 2})
    ada = both.participant()
    submission = both.submit(ada).json()["id"]
    close(both.database, claim(both.database))
    with both.database.write() as session:
        for row in session.query(Shard).filter_by(kind=ShardKind.RUNS.value):
            row.kind = kind.value
    fail(both, claim(both.database))
    with both.database.read() as session:
        failed = session.get_one(Submission, submission)
        assert (failed.stage, failed.refunded) == ("failed", False)
        assert failed.error is not None
        assert failed.error["bits"] > 0, "and in the leak budget"
    assert quota(both, ada)["remaining"] == 1


def test_host_failure_takes_no_free_failure(both: Instance) -> None:
    both.competition()
    ada = both.participant()
    both.submit(ada)
    fail(both, claim(both.database), fault=Fault.HOST)
    assert quota(both, ada)["free_failures_left"] == results.FREE_SAMPLE_FAILURES


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def test_two_uploads_at_once_share_what_a_failure_gave_back(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 1})
    ada = both.participant()
    fail_on_sample(both, ada)
    answers = at_once(lambda: both.submit(ada), lambda: both.submit(ada))
    assert sorted(answer.status_code for answer in answers) == [201, 429]
    assert quota(both, ada)["remaining"] == 0


def test_two_failures_at_once_share_the_last_free_one(both: Instance, two_free: None) -> None:
    both.competition(limits={"submissions_per_day": 3})
    ada = both.participant()
    fail_on_sample(both, ada)
    sent = [both.submit(ada).json()["id"] for _ in range(2)]
    shards = [claim(both.database) for _ in range(2)]
    at_once(*(lambda shard=shard: fail(both, shard) for shard in shards))
    shown = [both.client.get(f"/api/v1/submissions/{each}", headers=ada).json()["refunded"] for each in sent]
    assert sorted(shown) == [False, True]
    assert (quota(both, ada)["remaining"], quota(both, ada)["free_failures_left"]) == (2, 0)


def test_upload_while_the_failure_is_written(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 1})
    ada = both.participant()
    both.submit(ada)
    shard = claim(both.database)
    _, answer = at_once(lambda: fail(both, shard), lambda: both.submit(ada))
    assert answer.status_code == (201 if quota(both, ada)["remaining"] == 0 else 429)
    assert quota(both, ada)["used_today"] == (1 if answer.status_code == 201 else 0)


def test_cancelling_while_the_failure_is_written_waits_for_it(both: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    both.competition()
    ada = both.participant()
    submission = both.submit(ada).json()["id"]
    shard = claim(both.database)
    lock, calls = evaluation_repository.lock_evaluation, iter([0.8])

    def slow(session: Session, evaluation_id: str) -> Evaluation:
        found = lock(session, evaluation_id)
        time.sleep(next(calls, 0.0))
        return found

    def cancel() -> Any:
        time.sleep(0.3)
        return both.client.post(f"/api/v1/submissions/{submission}/cancel", headers=ada)

    monkeypatch.setattr(evaluation_repository, "lock_evaluation", slow)
    _, answer = at_once(lambda: fail(both, shard), cancel)
    assert answer.status_code == 409, "it has failed; on PostgreSQL neither holds what the other waits for"
    shown = both.client.get(f"/api/v1/submissions/{submission}", headers=ada).json()
    assert (shown["stage"], shown["refunded"]) == ("failed", True)
