"""What untrusted workers report counts after trusted ones found the same: forgeries, false failures, held shards."""

from dataclasses import dataclass

import numpy as np
import pytest
from safetensors.numpy import load
from sqlalchemy import select, update

from lethe.competition.visibility import Visibility
from server.config import Settings
from server.db import clock, database_time
from server.evaluations import lease_reaper, leases, verified_runs
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.models.account import AuditEvent
from server.models.competition import Split
from server.models.evaluation import Evaluation, PublicScore, Shard, ShardAttempt, ShardKind
from server.models.submission import Fault, Submission
from server.models.worker import WorkerFacts, WorkerToken
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from server.workers import verification
from tests.server.workers.conftest import N_FORGET, Hosted, RemoteWorker, hosted_on, outputs, submit, to_runs
from tests.support.instance import Instance
from worker.transport import DatabaseTransport

HONEST = 0.0  # every confidence of an honest run
FORGED = 1.0
FAILURE = {"error_class": "cheating", "message": "It cheats.", "run": 1}
SCORE = ScoreRecord(final_score=0.5, forgetting_quality=0.5, retain_ratio=1.0, test_ratio=1.0, details={})


@dataclass
class TrustedWorker:
    """A worker of the instance's own."""

    hosted: Hosted

    @property
    def leases(self) -> DatabaseTransport:
        server, facts = self.hosted.server, WorkerFacts("host-1", "cpu", 1024, {})
        return DatabaseTransport(server.database, server.storage, Settings(), facts)

    def claim(self) -> ClaimedShard | None:
        with self.hosted.server.database.write() as session:
            return leases.claim(session, worker="own-1", lease_s=60)

    def close(self, shard: ClaimedShard, *, confidence: float = HONEST) -> bool:
        result = None if shard.kind is ShardKind.SMOKE else of_confidence(shard.n_runs, confidence)
        return self.leases.close(shard, result, (), wall_time_s=1.0)

    def work(self, *, confidence: float = HONEST) -> list[ShardKind]:
        """Run everything that waits. Return of which kinds that was."""
        kinds = []
        while (shard := self.claim()) is not None:
            kinds.append(shard.kind)
            assert self.close(shard, confidence=confidence)
        return kinds


def of_confidence(n_runs: int, confidence: float) -> bytes:
    return outputs(n_runs, confidences=np.full((n_runs, N_FORGET), confidence))


@pytest.fixture
def trusted(hosted: Hosted) -> TrustedWorker:
    return TrustedWorker(hosted)


def run_all(worker: RemoteWorker, *, confidence: float = HONEST) -> None:
    """Let a remote worker run everything that it gets."""
    while (shard := worker.claim()) is not None:
        if shard["kind"] == "smoke":
            assert worker.finish().json() == {"held": True}
        else:
            answer = worker.step("PUT", "result", content=of_confidence(shard["n_runs"], confidence))
            assert answer.json() == {"held": True}, answer.text


def state(hosted: Hosted, submission_id: str) -> tuple[str, str]:
    """Return the submission's stage and its evaluation's state."""
    with hosted.server.database.read() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission_id)).one()
        return session.get_one(Submission, submission_id).stage, evaluation.state


def rows_of(hosted: Hosted, kind: str = "runs") -> list[Shard]:
    with hosted.server.database.read() as session:
        return list(session.scalars(select(Shard).where(Shard.kind == kind).order_by(Shard.first_run)))


def only_token(hosted: Hosted) -> WorkerToken:
    with hosted.server.database.read() as session:
        return session.scalars(select(WorkerToken)).one()


def confirm_runs(hosted: Hosted, number: int) -> None:
    """Let so many runs of every token have been found right before."""
    with hosted.server.database.write() as session:
        session.execute(update(WorkerToken).values(confirmed_runs=number))


def record_score(hosted: Hosted) -> None:
    with hosted.server.database.write() as session:
        evaluation = session.scalars(select(Evaluation)).one()
        assert scores.record(session, evaluation.id, SCORE)


def pass_time(hosted: Hosted, seconds: float) -> None:
    """Let the shard that is held have been claimed so long ago."""
    with hosted.server.database.write() as session:
        session.execute(update(Shard).where(Shard.state == "leased").values(claimed_at=database_time(-seconds)))


def test_forged_confidences_are_found_dropped_and_run_again(hosted: Hosted, trusted: TrustedWorker) -> None:
    submission, worker = submit(hosted), hosted.worker()
    run_all(worker, confidence=FORGED)
    assert state(hosted, submission) == ("running", "running"), "no score comes of runs that nobody checked"
    kinds = trusted.work()
    assert kinds.count(ShardKind.RUNS) == 2, "what it had run is run again"
    assert state(hosted, submission)[1] == "scoring"
    assert {shard.token_id for shard in rows_of(hosted)} == {None}
    for shard in rows_of(hosted):
        stored = load(hosted.server.storage.read_verified(shard.result_key or "", shard.result_sha256 or ""))
        assert (stored["confidences"] == HONEST).all()
    token = only_token(hosted)
    assert token.quarantined_at is not None
    assert "confidences differ by 1" in token.quarantine_reason
    assert worker.call("POST", "/claim").status_code == 401
    with hosted.server.database.read() as session:
        assert "worker_token.quarantined" in session.scalars(select(AuditEvent.action)).all()


def test_one_forged_value_is_found_when_its_run_is_drawn(hosted: Hosted, trusted: TrustedWorker) -> None:
    submit(hosted)
    worker = hosted.worker()
    confirm_runs(hosted, 100_000)
    shard = to_runs(worker)
    arrays = np.zeros((shard["n_runs"], N_FORGET))
    arrays[1, 3] = 0.02
    assert worker.step("PUT", "result", content=outputs(shard["n_runs"], confidences=arrays)).json()["held"]
    run_all(worker)
    assert len(rows_of(hosted, "check")) == 1
    with hosted.server.database.write() as session:
        session.execute(update(Shard).where(Shard.kind == "check").values(first_run=shard["first_run"] + 1))
    trusted.work()
    assert only_token(hosted).quarantined_at is not None


def test_honest_results_are_scored_and_build_trust(hosted: Hosted, trusted: TrustedWorker) -> None:
    submission, worker = submit(hosted), hosted.worker()
    run_all(worker, confidence=HONEST + 1e-5)  # as another processor rounds
    n_runs = sum(shard.n_runs for shard in rows_of(hosted))
    assert trusted.work() == [ShardKind.CHECK] * n_runs, "all runs of a new token are made again"
    assert state(hosted, submission)[1] == "scoring"
    token = only_token(hosted)
    assert (token.confirmed_runs, token.quarantined_at) == (n_runs, None)


@pytest.mark.parametrize(("confirmed", "share", "expected"), [(0, 0.05, 1), (10, 0.05, 0.5), (1000, 0.05, 0.05)])
def test_share_falls_to_the_least_as_runs_are_confirmed(confirmed: int, share: float, expected: float) -> None:
    assert verified_runs.share_of(WorkerToken(confirmed_runs=confirmed), share) == expected
    assert verified_runs.share_of(WorkerToken(confirmed_runs=confirmed), 0.0) == 0.0


def test_each_evaluation_of_a_known_token_is_checked_and_not_the_same_run(hosted, trusted):
    """The draw comes after the results, from the system's random numbers."""
    worker = hosted.worker()
    drawn = set()
    for name in ("pia", "otto", "eva", "max", "ida", "kai", "lea", "tom"):
        submit(hosted, name)
        confirm_runs(hosted, 100_000)
        run_all(worker)
        [check] = [shard for shard in rows_of(hosted, "check") if shard.state == "queued"]
        drawn.add(check.first_run)
        trusted.work()
    assert len(drawn) > 1


def test_untrusted_worker_gets_no_checks_nor_shards_of_trusted_ones(hosted: Hosted, trusted: TrustedWorker) -> None:
    submit(hosted)
    worker, other = hosted.worker(), hosted.worker("host-5678-abcd")
    run_all(worker)
    assert rows_of(hosted, "check")
    assert other.claim() is None
    assert trusted.claim() is not None


def test_scores_that_used_a_forgers_results_are_made_again(hosted: Hosted, trusted: TrustedWorker) -> None:
    first, worker = submit(hosted), hosted.worker()
    run_all(worker)
    trusted.work()
    record_score(hosted)
    assert state(hosted, first) == ("scored", "scored")
    second = submit(hosted, "otto")
    run_all(worker, confidence=FORGED)
    trusted.work()
    assert state(hosted, first) == ("scoring", "scoring"), "its score is dropped, its runs made again"
    assert state(hosted, second)[1] == "scoring"
    with hosted.server.database.read() as session:
        assert session.scalars(select(PublicScore)).all() == []
        tokens = {shard.token_id for shard in session.scalars(select(Shard).where(Shard.kind == "runs"))}
    assert tokens == {None}


def test_score_of_outputs_that_were_dropped_meanwhile_is_not_stored(hosted: Hosted, trusted: TrustedWorker) -> None:
    submit(hosted)
    worker = hosted.worker()
    run_all(worker)
    trusted.work()
    with hosted.server.database.write() as session:
        evaluation = session.scalars(select(Evaluation)).one()
        read_at, token = evaluation.finished_at, session.scalars(select(WorkerToken)).one()
        verification.quarantine(session, token, reason="a test")
    trusted.work()
    with hosted.server.database.write() as session:
        assert not scores.record(session, evaluation.id, SCORE, asked_at=read_at)
    record_score(hosted)


def test_quarantine_takes_back_what_the_tokens_workers_hold(hosted: Hosted, trusted: TrustedWorker) -> None:
    submit(hosted)
    worker = hosted.worker()
    run_all(worker, confidence=FORGED)
    submit(hosted, "otto")
    assert worker.claim() is not None
    assert ShardKind.SMOKE in trusted.work()
    assert worker.step("PUT", "lease", json={"runs_done": 1}).status_code == 401


def test_submission_that_differs_each_time_quarantines_nobody(hosted: Hosted, trusted: TrustedWorker) -> None:
    submission, worker = submit(hosted), hosted.worker()
    run_all(worker, confidence=FORGED)
    first = trusted.claim()
    assert first is not None
    assert first.kind is ShardKind.CHECK
    assert trusted.close(first, confidence=2.0)
    again = next(shard for shard in iter(trusted.claim, None) if shard and shard.shard_id == first.shard_id)
    assert trusted.close(again, confidence=3.0)
    assert only_token(hosted).quarantined_at is None
    assert {shard.token_id for shard in rows_of(hosted)} == {None}, "trusted workers run it"
    trusted.work()
    assert state(hosted, submission)[1] == "scoring"


@pytest.mark.parametrize("to_the_runs", [False, True])
def test_failure_that_an_untrusted_worker_alone_saw_is_no_verdict(hosted, trusted, to_the_runs):
    submission, worker = submit(hosted), hosted.worker()
    if to_the_runs:
        to_runs(worker)
    else:
        worker.claim()
    failed = worker.step("POST", "failure", json=FAILURE | {"logs": [{"run": 0, "text": "forged"}]})
    assert failed.json() == {"held": True}
    assert worker.step("POST", "failure", json=FAILURE).json() == {"held": True}
    assert state(hosted, submission)[0] in ("smoke", "running")
    assert worker.claim() is None or to_the_runs, "a trusted worker runs it again"
    trusted.work()
    with hosted.server.database.read() as session:
        found = session.get_one(Submission, submission)
        assert (found.stage, found.error, found.refunded) in [("scoring", None, False), ("running", None, False)]
        outcomes = session.scalars(select(ShardAttempt.outcome)).all()
    assert "refuted" in outcomes


def test_failure_that_a_trusted_worker_confirms_is_the_verdict(hosted: Hosted, trusted: TrustedWorker) -> None:
    submission, worker = submit(hosted), hosted.worker()
    worker.claim()
    worker.step("POST", "failure", json=FAILURE)
    shard = trusted.claim()
    assert shard is not None
    failure = ShardFailure(Fault.PARTICIPANT, "exception", "It raised.", run=0)
    assert trusted.leases.fail(shard, failure, (), runs_done=0)
    assert state(hosted, submission) == ("failed", "failed")


@pytest.mark.parametrize(("error_class", "is_quarantined"), [("cheating", True), ("timeout", False)])
def test_failures_of_three_teams_that_nobody_else_sees_quarantine_the_token(
    hosted, trusted, error_class, is_quarantined
):
    """But not the timeouts of a slow machine."""
    worker = hosted.worker()
    for name in ("pia", "otto", "eva"):
        assert only_token(hosted).quarantined_at is None
        submit(hosted, name)
        worker.claim()
        worker.step("POST", "failure", json=FAILURE | {"error_class": error_class})
        trusted.work()
    assert ("of 3 teams" in (only_token(hosted).quarantine_reason or "")) is is_quarantined


@pytest.mark.parametrize("says", ["failed", "done"])
def test_trusted_workers_over_http_contradict_others_too(hosted: Hosted, says: str) -> None:
    worker, trusted = hosted.worker(), hosted.worker("host-5678-abcd", trusted=True)
    submit(hosted)
    if says == "failed":
        worker.claim()
        worker.step("POST", "failure", json=FAILURE)
        run_all(trusted)
    else:
        run_all(worker)
        check = trusted.claim()
        assert check is not None
        assert check["kind"] == "check"
        assert trusted.step("POST", "failure", json=FAILURE | {"run": check["first_run"]}).json() == {"held": True}
    with hosted.server.database.read() as session:
        assert "refuted" in session.scalars(select(ShardAttempt.outcome)).all()


def test_success_that_fails_on_a_trusted_worker_counts_against_the_token(hosted, trusted):
    worker = hosted.worker()
    for name in ("pia", "otto", "eva"):
        submission = submit(hosted, name)
        run_all(worker)
        check = trusted.claim()
        assert check is not None
        failure = ShardFailure(Fault.PARTICIPANT, "exception", "It raised.", run=check.first_run)
        assert trusted.leases.fail(check, failure, (), runs_done=0)
        assert state(hosted, submission) == ("failed", "failed")
    assert only_token(hosted).quarantined_at is not None


@pytest.mark.parametrize("how", ["gives back", "is silent"])
def test_untrusted_workers_cannot_end_an_evaluation_by_host_faults(hosted, trusted, how):
    submission, worker = submit(hosted), hosted.worker()
    to_runs(worker)
    for _ in range(3):
        if how == "gives back":
            worker.step("POST", "give-back", json={"reason": "the disk is full"})
        else:
            with hosted.server.database.write() as session:
                held = update(Shard).where(Shard.state == "leased")
                session.execute(held.values(lease_expires_at=database_time(-1)))
                lease_reaper.sweep(session, clock(session), max_attempts=3)
        if worker.claim() is None:
            break
    assert state(hosted, submission) == ("running", "running")
    assert any(shard.trusted_only and shard.failed_attempts == 0 for shard in rows_of(hosted))


def test_time_of_an_untrusted_worker_is_the_servers(hosted: Hosted) -> None:
    submit(hosted)
    worker = hosted.worker()
    shard = to_runs(worker)
    pass_time(hosted, 100)
    assert worker.step("PUT", "lease", json={"runs_done": 0, "wall_time_s": 0.0}).json() == {"held": True}
    [held] = [row for row in rows_of(hosted) if row.state == "leased"]
    assert held.wall_time_s == pytest.approx(100, abs=5)
    assert worker.step("PUT", "result", content=outputs(shard["n_runs"], wall_time_s=np.zeros(shard["n_runs"]))).json()
    [done] = [row for row in rows_of(hosted) if row.state == "done"]
    assert done.wall_time_s == pytest.approx(100, abs=5)
    stored = load(hosted.server.storage.read_verified(done.result_key or "", done.result_sha256 or ""))
    assert stored["wall_time_s"].sum() == pytest.approx(100, abs=5)


@pytest.mark.parametrize("smoke", [False, True])
def test_untrusted_worker_that_reports_no_time_holds_no_shard_for_ever(hosted, trusted, smoke):
    submission, worker = submit(hosted), hosted.worker()
    if smoke:
        worker.claim()
    else:
        to_runs(worker)
    pass_time(hosted, 9 * 3600)
    assert worker.step("PUT", "lease", json={"runs_done": 0, "wall_time_s": 0.0}).json() == {"held": False}
    assert worker.step("PUT", "result", content=outputs(4)).json().get("held") is not True
    assert state(hosted, submission)[0] in ("smoke", "running"), "it costs nobody a submission"
    trusted.work()
    assert not [row for row in rows_of(hosted) if row.state == "leased"]


def test_time_that_untrusted_workers_took_costs_no_submission(hosted: Hosted, trusted: TrustedWorker) -> None:
    """Stalled shards fill up the competition's time; then a trusted worker closes the last one."""
    submission, worker = submit(hosted), hosted.worker()
    shard = to_runs(worker)
    with hosted.server.database.write() as session:
        session.execute(update(Shard).where(Shard.kind == "runs", Shard.state == "leased").values(wall_time_s=1.0))
    assert worker.step("PUT", "result", content=outputs(shard["n_runs"])).json()["held"]
    with hosted.server.database.write() as session:
        session.execute(update(Shard).where(Shard.state == "done", Shard.kind == "runs").values(wall_time_s=1e6))
    trusted.work()
    assert state(hosted, submission) == ("scoring", "scoring")
    assert {row.token_id for row in rows_of(hosted)} == {None}


def test_competition_for_trusted_workers_refuses_others_with_the_reason(server: Instance) -> None:
    hosted = hosted_on(server, extra="[workers]\ntrusted_only = true\n")
    worker = RemoteWorker(server, hosted.token()["token"])
    answer = worker.register()
    assert answer.status_code == 409
    assert "digits takes trusted workers only" in answer.text
    submit(hosted)
    assert TrustedWorker(hosted).claim() is not None


def test_only_an_administrator_vouches_for_a_machine(hosted: Hosted) -> None:
    url, body = "/api/v1/competitions/digits/worker-tokens", {"name": "gpu room", "trusted": True}
    assert hosted.server.client.post(url, headers=hosted.organiser, json=body).status_code == 403
    assert hosted.token(trusted=True)["trusted"] is True


def test_results_of_a_trusted_machine_count_and_check_others(hosted: Hosted) -> None:
    own, first = hosted.worker("own-1234", trusted=True), submit(hosted)
    run_all(own)
    assert state(hosted, first)[1] == "scoring"
    worker = hosted.worker()
    second = submit(hosted, "otto")
    run_all(worker)
    assert state(hosted, second)[1] == "running"
    run_all(own)
    assert state(hosted, second)[1] == "scoring"


def test_notebook_is_checked_as_a_whole(hosted: Hosted, trusted: TrustedWorker) -> None:
    submit(hosted)
    with hosted.server.database.write() as session:
        submission = session.scalars(select(Submission)).one()
        submission.entry_point = {**submission.entry_point, "mode": "notebook"}
    worker = hosted.worker()
    run_all(worker)
    [runs], [check] = rows_of(hosted), rows_of(hosted, "check")
    assert (check.first_run, check.n_runs) == (0, runs.n_runs)


def test_private_finals_wait_for_the_checks(hosted: Hosted, trusted: TrustedWorker) -> None:
    submission, worker = submit(hosted), hosted.worker()
    with hosted.server.database.write() as session:
        evaluation = session.scalars(select(Evaluation)).one()
        splits = {split.visibility: split.id for split in session.scalars(select(Split))}
        evaluation.split_id = splits[Visibility.PRIVATE.value]
        session.execute(update(Shard).values(split_id=evaluation.split_id))
    run_all(worker)
    assert state(hosted, submission)[1] == "running"
    trusted.work()
    assert state(hosted, submission)[1] == "scoring"
