"""Leases: what each step changes, and that an attempt which is no longer current changes nothing."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from server.db import Database, clock, database_time, now
from server.evaluations import evaluation_repository, evaluations, lease_reaper, leases
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure, run_seed, sample_data
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, PublicScore, Shard, ShardAttempt
from server.models.submission import Fault, Submission
from server.models.worker import Worker
from server.queue import EVALUATE_SHARD, MAX_WAKE_UPS, SCORE_EVALUATION
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from tests.server.evaluations.conftest import SHARD_RUNS, N, Submit, add_submission
from tests.support.instance import Instance, competition_toml
from tests.support.leases import claim, close, stage

SCORE = ScoreRecord(final_score=0.1, forgetting_quality=0.1, retain_ratio=1.0, test_ratio=1.0, details={})


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
        again = evaluations.start(
            session, session.merge(submission), evaluation_split(session, evaluation), smoke=False
        )
        assert again.id == evaluation.id
        assert session.query(Shard).count() == 3


def evaluation_split(session, evaluation):  # type: ignore[no-untyped-def]
    return session.get_one(Split, evaluation.split_id)


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


def test_claim_with_nothing_queued_gives_none(database: Database) -> None:
    with database.write() as session:
        assert leases.claim(session, worker="w", lease_s=1) is None


def test_claim_serves_a_team_with_nothing_open_before_another_of_a_flood(database: Database, submit: Submit) -> None:
    flood = [submit("flood").id for _ in range(3)]
    late = submit("late")
    assert [claim(database).submission_id for _ in range(7)] == [flood[0]] * 3 + [late.id] * 3 + [flood[1]]


def test_smoke_run_has_no_seed_of_a_run_on_hidden_data(database, competition, sent):
    add_submission(database, competition, "a", smoke=True)
    smoke = claim(database)
    assert close(database, smoke)
    seeds: set[int] = set()
    for _ in range(3):
        seeds |= set(claim(database).seeds)
    assert len(seeds) == N
    assert not seeds & set(smoke.seeds)


def test_smoke_runs_of_two_submissions_have_different_seeds(database, competition, sent):
    for team in ("a", "b"):
        add_submission(database, competition, team, smoke=True)
    assert claim(database).seeds != claim(database).seeds


def test_smoke_goes_before_runs_and_is_followed_by_them(database, competition, sent):
    waiting = add_submission(database, competition, "a")
    submission = add_submission(database, competition, "a", smoke=True)
    smoke = claim(database)
    assert (smoke.submission_id, smoke.kind, smoke.n_runs) == (submission.id, "smoke", 1)
    assert stage(database, submission) == "smoke"
    assert close(database, smoke)
    assert stage(database, submission) == "running"
    assert stage(database, waiting) == "queued"
    with database.read() as session:
        assert session.query(Shard).filter_by(kind="runs").count() == 6


def test_last_shard_asks_for_the_score_once(database: Database, submit: Submit, sent: list[str]) -> None:
    submission = submit("a")
    shards = [claim(database) for _ in range(3)]
    assert [close(database, shard) for shard in shards] == [True, True, True]
    assert sent.count(SCORE_EVALUATION) == 1
    assert stage(database, submission) == "scoring"
    assert not close(database, shards[2])
    assert sent.count(SCORE_EVALUATION) == 1


def all_runs_done(database: Database, submission: Submission) -> str:
    """Close all shards of the only submission. Return its evaluation's id."""
    for shard in [claim(database) for _ in range(3)]:
        assert shard.submission_id == submission.id
        close(database, shard)
    return shard.evaluation_id


def test_score_is_requested_again_whatever_the_workers_clock(database, submit, sent, monkeypatch):
    for module in ("evaluations", "lease_repository"):
        monkeypatch.setattr(f"server.evaluations.{module}.now", lambda: now() + timedelta(hours=1))
    all_runs_done(database, submit("a"))
    sent.clear()  # the message is lost
    with database.write() as session:
        assert lease_reaper.sweep(session, clock(session) + timedelta(seconds=11), max_attempts=3).scores_asked == 1
    assert sent == [SCORE_EVALUATION]


def test_score_is_not_requested_again_while_a_worker_holds_it(
    database: Database, submit: Submit, sent: list[str]
) -> None:
    evaluation_id = all_runs_done(database, submit("a"))
    with database.write() as session:
        later = clock(session) + timedelta(seconds=11)
        assert scores.claim(session, evaluation_id, lease_s=60.0)
        assert lease_reaper.sweep(session, later, max_attempts=3).scores_asked == 0
        session.get_one(Evaluation, evaluation_id).scoring_until = clock(session) - timedelta(seconds=1)
        assert lease_reaper.sweep(session, later, max_attempts=3).scores_asked == 1


def test_scorer_that_hangs_is_given_up_after_a_day(database: Database, submit: Submit, sent: list[str]) -> None:
    evaluation_id = all_runs_done(database, submit("a"))
    with database.write() as session:
        attempt = scores.claim(session, evaluation_id, lease_s=60.0)
        assert attempt
        session.get_one(Evaluation, evaluation_id).finished_at = clock(session) - timedelta(hours=25)
        session.flush()
        lease_reaper.sweep(session, clock(session), max_attempts=3)
        assert session.get_one(Evaluation, evaluation_id).state == "failed"
        still_held = evaluation_repository.hold_scoring(session, evaluation_id, attempt, lease_s=60.0)
        assert not still_held, "its heartbeat stops"


def test_scorer_that_lost_its_lease_changes_nothing_of_the_next(
    database: Database, submit: Submit, sent: list[str]
) -> None:
    evaluation_id = all_runs_done(database, submit("a"))
    with database.write() as session:
        former = scores.claim(session, evaluation_id, lease_s=-1.0)
        assert former
    with database.write() as session:
        assert evaluation_repository.hold_scoring(session, evaluation_id, former, lease_s=-1.0)  # nobody has it yet
        current = scores.claim(session, evaluation_id, lease_s=60.0)
        assert current == former + 1
        assert scores.record(session, evaluation_id, SCORE)
    with database.write() as session:
        until = session.get_one(Evaluation, evaluation_id).scoring_until
        assert not evaluation_repository.hold_scoring(session, evaluation_id, former, lease_s=600.0)
        assert not evaluation_repository.end_scoring(session, evaluation_id, former)
        scores.record_doubt(session, evaluation_id, former, {"by": "former"})
    with database.write() as session:
        assert session.get_one(Evaluation, evaluation_id).scoring_until == until
        assert session.query(PublicScore).one().details == {}
        scores.record_doubt(session, evaluation_id, current, {"by": "current"})
    with database.read() as session:
        assert session.get_one(Evaluation, evaluation_id).scoring_until is None
        assert session.query(PublicScore).one().details == {"flags": {"by": "current"}}


def test_lease_of_a_score_from_before_the_clock_was_set_back_is_shortened(
    database: Database, submit: Submit, sent: list[str]
) -> None:
    evaluation_id = all_runs_done(database, submit("a"))
    with database.write() as session:
        evaluation = session.get_one(Evaluation, evaluation_id)
        at = clock(session)
        evaluation.scoring_until = at + timedelta(hours=10)
        session.flush()
        lease_reaper.sweep(session, at, max_attempts=3, lease_s=60.0)
        session.refresh(evaluation)
        assert evaluation.scoring_until == at + timedelta(seconds=60)


def test_score_is_requested_again_as_soon_as_the_sweeper_says(database, submit, sent):
    all_runs_done(database, submit("a"))
    sent.clear()  # the message is lost
    with database.write() as session:
        later, two = clock(session) + timedelta(seconds=3), timedelta(seconds=2)
        assert lease_reaper.sweep(session, later, max_attempts=3).scores_asked == 0
        assert lease_reaper.sweep(session, later, max_attempts=3, resent_after=two).scores_asked == 1
    assert sent == [SCORE_EVALUATION]


def test_many_missing_scores_are_asked_for_a_few_at_a_time(database: Database, submit: Submit, sent: list[str]) -> None:
    for number in range(MAX_WAKE_UPS + 2):
        all_runs_done(database, submit(f"team-{number}"))
    sent.clear()
    with database.write() as session:
        assert (
            lease_reaper.sweep(session, clock(session) + timedelta(seconds=11), max_attempts=3).scores_asked
            == MAX_WAKE_UPS
        )
    assert sent == [SCORE_EVALUATION] * MAX_WAKE_UPS


def test_unscorable_for_a_day_ends_in_a_refunded_failure(database: Database, submit: Submit, sent: list[str]) -> None:
    submission = submit("a")
    evaluation_id = all_runs_done(database, submission)
    for hours, expected in ((23, "scoring"), (25, "failed")):
        with database.write() as session:
            lease_reaper.sweep(session, clock(session) + timedelta(hours=hours), max_attempts=3)
        assert stage(database, submission) == expected
    with database.read() as session:
        ended = session.get_one(Submission, submission.id)
        assert (ended.fault, ended.error_class, ended.refunded) == ("host", "not-scored", True)
    with database.write() as session:
        assert not scores.record(session, evaluation_id, SCORE)


def test_score_is_recorded_exactly_once(database: Database, submit: Submit) -> None:
    submission = submit("a")
    for shard in [claim(database) for _ in range(3)]:
        close(database, shard)
        evaluation_id = shard.evaluation_id
    with database.write() as session:
        assert scores.record(session, evaluation_id, SCORE)
    with database.write() as session:
        assert not scores.record(session, evaluation_id, SCORE.model_copy(update={"final_score": 0.9}))
    with database.read() as session:
        assert [row.final_score for row in session.query(PublicScore)] == [0.1]
    assert stage(database, submission) == "scored"


def test_score_before_the_last_shard_is_refused(database: Database, submit: Submit) -> None:
    submit("a")
    shard = claim(database)
    with database.write() as session:
        assert scores.claim(session, shard.evaluation_id, lease_s=60.0) is None
        assert not scores.record(session, shard.evaluation_id, SCORE)


def test_lost_lease_is_requeued_and_the_zombie_is_refused(database: Database, submit: Submit, sent: list[str]) -> None:
    submit("a")
    zombie = claim(database, lease_s=-1)
    with database.write() as session:
        assert lease_reaper.sweep(session, now(), max_attempts=3).leases_lost == 1
    heir = next(s for s in (claim(database) for _ in range(3)) if s.shard_id == zombie.shard_id)
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


def test_sweep_leaves_a_living_lease_alone(database: Database, submit: Submit) -> None:
    submit("a")
    claim(database, lease_s=60)
    with database.write() as session:
        assert lease_reaper.sweep(session, now(), max_attempts=3).leases_lost == 0


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


def test_sweep_asks_again_for_a_score_that_never_came(database: Database, submit: Submit, sent: list[str]) -> None:
    submit("a")
    for shard in [claim(database) for _ in range(3)]:
        close(database, shard)
    sent.clear()
    with database.write() as session:
        lease_reaper.sweep(session, now() + timedelta(seconds=30), max_attempts=3)
    assert sent == [SCORE_EVALUATION]


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


@pytest.mark.parametrize("over", [False, True])
def test_all_runs_together_are_held_to_the_wall_time(database: Database, submit: Submit, over: bool) -> None:
    submission = submit("a")
    limit = 8 * 3600
    first, second = claim(database), claim(database)
    assert close(database, first, wall_time_s=limit - 10)
    with database.write() as session:
        spent = 11.0 if over else 9.0
        assert leases.heartbeat(session, second, lease_s=60, runs_done=2, wall_time_s=spent) is not over
    if over:
        with database.write() as session:
            assert leases.fail_over_time(session, second, runs_done=2)
        with database.read() as session:
            assert session.get_one(Submission, submission.id).error_class == "evaluation-timeout"


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
