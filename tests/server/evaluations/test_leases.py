"""Leases: what each step changes, and that an attempt which is no longer current changes nothing."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import event, update

from server.db import Database, clock, database_time, now
from server.evaluations import evaluations, lease_reaper, lease_repository, leases
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure, run_seed, sample_data
from server.evaluations.lease_repository import EvaluationRuns
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, Shard, ShardAttempt
from server.models.submission import Fault, Submission
from server.models.worker import Worker
from server.queue import EVALUATE_SHARD, SCORE_EVALUATION
from tests.server.evaluations.conftest import SHARD_RUNS, N, Submit, add_submission
from tests.support.instance import Instance, competition_toml
from tests.support.leases import claim, close, stage

WALL_TIME_S = 8 * 3600.0


def test_start_cuts_every_run_into_exactly_one_shard(database: Database, submit: Submit, sent: list[str]) -> None:
    submit("a")
    with database.read() as session:
        runs = [run for shard in session.query(Shard) for run in range(shard.first_run, shard.first_run + shard.n_runs)]
    assert sorted(runs) == list(range(N))
    assert sent == [EVALUATE_SHARD] * 3


def test_start_twice_makes_one_evaluation(database: Database, competition: Competition, submit: Submit) -> None:
    submission = submit("a")
    with database.write() as session:
        evaluation = session.query(Evaluation).one()
        split = session.get_one(Split, evaluation.split_id)
        again = evaluations.start(session, session.merge(submission), split, smoke=False)
        assert again.id == evaluation.id
        assert session.query(Shard).count() == 3


def test_claim_seeds_depend_on_split_and_run_only(database: Database, submit: Submit) -> None:
    submit("a")
    submit("b")
    seeds: dict[int, set[int]] = {}
    for _ in range(6):
        shard = claim(database)
        for run, seed in enumerate(shard.seeds, start=shard.first_run):
            seeds.setdefault(run, set()).add(seed)
    assert sorted(seeds) == list(range(N))
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == N


def test_smoke_run_has_no_seed_of_a_run_on_hidden_data(database, competition, sent):
    """Nor one of another submission's smoke run."""
    for team in ("a", "b"):
        add_submission(database, competition, team, smoke=True)
    smokes = [claim(database) for _ in range(2)]
    assert all(close(database, smoke) for smoke in smokes)
    seeds = {seed for _ in range(6) for seed in claim(database).seeds}
    assert len(seeds) == N
    assert len(seeds | {seed for smoke in smokes for seed in smoke.seeds}) == N + 2


def test_smoke_run_is_followed_by_runs_and_costs_the_evaluation_no_time(database, competition, sent):
    submission = add_submission(database, competition, "a", smoke=True)
    smoke = claim(database)
    assert (smoke.kind, smoke.n_runs, stage(database, submission)) == ("smoke", 1, "smoke")
    assert close(database, smoke, wall_time_s=2 * WALL_TIME_S)
    assert stage(database, submission) == "running"
    shard = claim(database)
    assert (shard.kind, shard.n_runs) == ("runs", SHARD_RUNS)
    assert close(database, shard, wall_time_s=WALL_TIME_S - 1)
    assert stage(database, submission) == "running"


def test_last_of_shards_closed_at_once_asks_for_the_score_once(database, submit, sent):
    submission = submit("a")
    shards = [claim(database) for _ in range(3)]
    together = threading.Barrier(len(shards))

    def end(shard: ClaimedShard) -> bool:
        together.wait(30)
        return close(database, shard)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(end, shards)) == [True] * 3
    assert stage(database, submission) == "scoring"
    assert not close(database, shards[2])
    assert sent.count(SCORE_EVALUATION) == 1


def test_lost_lease_is_requeued_and_the_zombie_is_refused(database: Database, submit: Submit, sent: list[str]) -> None:
    submit("a")
    living, zombie = claim(database), claim(database, lease_s=-1)
    with database.write() as session:
        assert lease_reaper.sweep(session, now(), max_attempts=3).leases_lost == 1
        assert session.get_one(Shard, living.shard_id).state == "leased"
    heir = next(s for s in (claim(database) for _ in range(2)) if s.shard_id == zombie.shard_id)
    assert heir.attempt == zombie.attempt + 1
    with database.write() as session:
        assert not leases.heartbeat(session, zombie, lease_s=60, runs_done=1, wall_time_s=1)
        assert not leases.give_back(session, zombie, reason="late", runs_done=0, max_attempts=3)
        assert not leases.fail(session, zombie, failure(), runs_done=0)
    assert not close(database, zombie)
    assert close(database, heir)
    with database.read() as session:
        attempts = session.query(ShardAttempt).filter_by(shard_id=heir.shard_id).order_by(ShardAttempt.attempt)
        assert [attempt.outcome for attempt in attempts] == ["lost", "done"]


def test_three_lost_workers_end_in_a_named_refunded_failure(database: Database, submit: Submit) -> None:
    submission = submit("poisoned")
    other = submit("other")
    for _ in range(20):
        with database.write() as session:
            shard = leases.claim(session, worker="w", lease_s=-1)
        if shard is None:
            break
        if shard.submission_id == other.id:
            close(database, shard)
        with database.write() as session:
            lease_reaper.sweep(session, now(), max_attempts=3)
    with database.read() as session:
        ended = session.get_one(Submission, submission.id)
        assert (ended.stage, ended.fault, ended.error_class, ended.refunded) == ("failed", "host", "worker-lost", True)
    assert stage(database, other) == "scoring"


def test_sweep_sends_hints_for_work_nobody_was_told_of(database: Database, submit: Submit, sent: list[str]) -> None:
    submit("a")
    sent.clear()
    with database.write() as session:
        assert lease_reaper.sweep(session, now(), max_attempts=3).hints_sent == 0
    with database.write() as session:
        assert lease_reaper.sweep(session, now() + timedelta(seconds=30), max_attempts=3).hints_sent == 3
    assert sent == [EVALUATE_SHARD] * 3


def failure(**changes: object) -> ShardFailure:
    values: dict[str, object] = {
        "fault": Fault.PARTICIPANT,
        "error_class": "exception",
        "message": "it raised",
        "run": 3,
        "exception_type": "ValueError",
        "file": "a.py",
        "line": 7,
    }
    return ShardFailure(**(values | changes))  # type: ignore[arg-type]


def test_failure_names_the_line_and_stops_the_other_shards(database: Database, submit: Submit) -> None:
    submission = submit("a")
    first, second = claim(database), claim(database)
    with database.write() as session:
        assert leases.fail(session, first, failure(), runs_done=3)
    with database.write() as session:
        assert not leases.heartbeat(session, second, lease_s=60, runs_done=1, wall_time_s=1)
    with database.read() as session:
        ended = session.get_one(Submission, submission.id)
        assert (ended.stage, ended.fault, ended.refunded) == ("failed", "participant", False)
        told = {"message": "it raised", "run": 3, "exception_type": "ValueError", "file": "a.py", "line": 7}
        assert ended.error is not None
        assert told.items() <= ended.error.items()
        assert {shard.state for shard in session.query(Shard)} == {"failed", "cancelled"}
    with database.write() as session:
        assert leases.claim(session, worker="w", lease_s=60) is None


def test_host_fault_is_tried_again_then_refunded(database: Database, submit: Submit) -> None:
    submission = submit("a")
    for attempt in range(1, 4):
        shard = next(s for s in iter(lambda: claim(database), None) if s.first_run == 0)
        assert shard.attempt == attempt
        with database.write() as session:
            assert leases.give_back(session, shard, reason="disk full", runs_done=0, max_attempts=3)
    with database.read() as session:
        ended = session.get_one(Submission, submission.id)
        assert (ended.stage, ended.fault, ended.error_class, ended.refunded) == ("failed", "host", "host-fault", True)
        details = [a.detail for a in session.query(ShardAttempt).filter_by(shard_id=shard.shard_id)]
        assert details == ["disk full"] * 3
        assert ended.error is not None
        assert "disk full" not in str(ended.error)


def test_cancel_takes_the_work_away(database: Database, submit: Submit) -> None:
    submission = submit("a")
    shard = claim(database)
    with database.write() as session:
        evaluations.cancel(session, session.get_one(Submission, submission.id), refunded=True)
    assert stage(database, submission) == "cancelled"
    assert not close(database, shard)
    with database.write() as session:
        assert leases.claim(session, worker="w", lease_s=60) is None


@pytest.mark.parametrize("step", ["heartbeat", "close"])
def test_all_runs_together_are_held_to_the_wall_time(database, submit, step):
    submission = submit("a")
    first, second = claim(database), claim(database)
    assert close(database, first, wall_time_s=WALL_TIME_S - 10)
    assert stage(database, submission) == "running"
    if step == "close":
        assert close(database, second, wall_time_s=11.0)
    else:
        with database.write() as session:
            assert leases.heartbeat(session, second, lease_s=60, runs_done=2, wall_time_s=9.0)
            assert not leases.heartbeat(session, second, lease_s=60, runs_done=2, wall_time_s=11.0)
        with database.write() as session:
            assert leases.fail_over_time(session, second, runs_done=2)
    with database.read() as session:
        ended = session.get_one(Submission, submission.id)
        assert (ended.stage, ended.error_class) == ("failed", "evaluation-timeout")


def test_progress_counts_runs_and_tells_the_attempts(database: Database, submit: Submit) -> None:
    submission = submit("a")
    first, second = claim(database), claim(database)
    close(database, first)
    with database.write() as session:
        leases.heartbeat(session, second, lease_s=60, runs_done=2, wall_time_s=1)
    with database.read() as session:
        found = evaluations.progress(session, [submission.id])[submission.id]
    assert (found.runs_done, found.runs_total) == (SHARD_RUNS + 2, N)
    assert [entry.outcome for entry in found.attempts] == ["done", "running"]
    assert found.remaining_s is not None


def test_private_failure_leaves_the_public_submission_alone(database, competition, sent):
    submission = add_submission(database, competition, "a", visibility="private")
    shard = claim(database)
    with database.write() as session:
        leases.fail(session, shard, failure(), runs_done=0)
    with database.read() as session:
        assert session.query(Evaluation).one().state == "failed"
        assert session.get_one(Submission, submission.id).error_class is None


def add_worker(database: Database, name: str, **values: object) -> None:
    with database.write() as session:
        session.add(Worker(name=name, device="cpu", memory_mib=1, versions={}, **values))


def try_claim(database: Database, worker: str) -> ClaimedShard | None:
    with database.write() as session:
        return leases.claim(session, worker=worker, lease_s=60)


def fail_at(database: Database, shard: ClaimedShard, *, how: str) -> None:
    with database.write() as session:
        if how == "given back":
            assert leases.give_back(session, shard, reason="disk full", runs_done=0, max_attempts=5)
        elif how == "checked again":
            assert leases.check_again(session, shard, result_key="k", result_sha256="0" * 64)
        else:
            later = clock(session) + timedelta(seconds=61)
            assert lease_reaper.sweep(session, later, max_attempts=5).leases_lost == 1


@pytest.mark.parametrize("how", ["given back", "lost", "checked again"])
def test_shard_goes_to_another_host_than_the_one_that_failed(database: Database, submit: Submit, how: str) -> None:
    submit("a")
    for name in ("broken-1", "broken-2", "sound-1"):
        add_worker(database, name)
    rest = [claim(database, worker=f"busy-{n}", lease_s=600) for n in range(2)]
    shard = claim(database, worker="broken-1")
    fail_at(database, shard, how=how)
    assert try_claim(database, "broken-1") is None
    assert try_claim(database, "broken-2") is None, "another process of the same host"
    again = try_claim(database, "sound-1")
    assert again is not None
    assert (again.shard_id, again.attempt) == (shard.shard_id, 2)
    assert all(close(database, each) for each in rest)


@pytest.mark.parametrize("other", [None, {"state": "draining"}, {"state": "cooling"}, {"seen_at": database_time(-300)}])
def test_host_gets_back_at_once_what_no_other_could_take(database, submit, other):
    submit("a")
    add_worker(database, "only-1")
    add_worker(database, "only-2")
    if other is not None:
        add_worker(database, "other-1", **other)
    shard = claim(database, worker="only-1")
    fail_at(database, shard, how="given back")
    assert claim(database, worker="only-1").shard_id == shard.shard_id


def test_host_gets_back_after_a_while_what_no_other_took(database: Database, submit: Submit) -> None:
    submit("a")
    for name in ("broken-1", "sound-1"):
        add_worker(database, name)
    shard = claim(database, worker="broken-1")
    fail_at(database, shard, how="given back")
    assert claim(database, worker="broken-1").shard_id != shard.shard_id
    with database.write() as session:
        session.execute(update(Shard).where(Shard.id == shard.shard_id).values(queued_at=database_time(-61)))
    assert claim(database, worker="broken-1").shard_id == shard.shard_id


def test_seed_differs_by_competition_split_and_run() -> None:
    seeds = {
        run_seed(slug, visibility, split_seed=split_seed, run=run)
        for slug in "ab"
        for visibility in ("public", "private", sample_data("1"), sample_data("2"))
        for split_seed in (2**64, 2**64 + 1)
        for run in range(9)
    }
    assert len(seeds) == 144


def test_weak_seed_must_be_allowed_by_the_file(server: Instance) -> None:
    headers = server.organiser()

    def created(slug: str, seed: int, extra: str = "") -> int:
        text = competition_toml(slug, extra=f"{extra}\n[splits]\nseed = {seed}\n")
        return server.client.post("/api/v1/competitions", headers=headers, content=text).status_code

    assert created("weak", 2**62) == 422
    assert created("strong", 2**64 + 1) == 201
    assert created("known", 7, "weak_seed = true") == 201
    assert created("older", 7, "strangers = false") == 201  # what a file said until version 0.2
    assert created("refused", 7, "strangers = true") == 422


def statements(database: Database, step: Callable[[], object]) -> int:
    """Return how many statements `step` sends, without the ends of its transactions."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):  # on SQLite, we send it ourselves
            seen.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    step()
    event.remove(database.engine, "before_cursor_execute", note)
    return len(seen)


def test_a_shard_costs_eight_statements(database: Database, submit: Submit) -> None:
    submit("a")
    claim(database)  # the first one also changes the evaluation and the submission
    assert statements(database, lambda: claim(database)) == 4
    shard = claim(database)

    def beat() -> None:
        with database.write() as session:
            assert leases.heartbeat(session, shard, lease_s=60, runs_done=1, wall_time_s=1.0)

    assert statements(database, beat) == 1
    assert statements(database, lambda: close(database, shard)) == 3


def test_heartbeat_sums_other_shards_and_its_own_new_values(database: Database, submit: Submit) -> None:
    submit("a")
    first, second = claim(database), claim(database)
    assert close(database, first, wall_time_s=100.0)
    for spent in (10.0, 20.0):
        with database.write() as session:
            runs = lease_repository.hold(session, second, lease_s=60, runs_done=1, wall_time_s=spent)
        assert runs == EvaluationRuns(wall_time_s=100.0 + spent, unfinished_shards=2)
