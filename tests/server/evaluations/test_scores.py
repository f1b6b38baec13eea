"""Scores: asked for again until they are recorded, exactly once, and compared as the scorer compares them."""

from datetime import timedelta

import numpy as np
import pytest

from lethe.metrics.scoring.resampling import SIGNIFICANCE, Replicates, ScoredEntry
from lethe.metrics.scoring.resampling import compare as scorers
from server.db import Database, clock, now
from server.errors import Conflict
from server.evaluations import evaluation_repository, lease_reaper, paired_test
from server.models.evaluation import Evaluation, PublicScore
from server.models.submission import Submission
from server.queue import MAX_WAKE_UPS, SCORE_EVALUATION
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from tests.server.evaluations.conftest import Submit
from tests.support.leases import claim, close, stage
from worker.evaluation.scoring_job import replicates_as_data

SCORE = ScoreRecord(final_score=0.1, forgetting_quality=0.1, retain_ratio=1.0, test_ratio=1.0, details={})


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


def test_score_is_not_requested_again_while_a_worker_holds_it(database, submit, sent):
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


def test_scorer_that_lost_its_lease_changes_nothing_of_the_next(database, submit, sent):
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


def test_lease_of_a_score_from_before_the_clock_was_set_back_is_shortened(database, submit, sent):
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
        later = clock(session) + timedelta(seconds=11)
        assert lease_reaper.sweep(session, later, max_attempts=3).scores_asked == MAX_WAKE_UPS
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
    evaluation_id = all_runs_done(database, submission)
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


def replicates(level: float, *, draw: int = 0, seed: int = 0, size: int = 40, shift: float = 0.0) -> Replicates:
    rng = np.random.default_rng(draw)
    values = level + shift * rng.normal(size=size)
    return Replicates(forgetting_quality=values, headline=values, factor=1.1, seed=seed, n_models=16)


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [((0.3, 1), (0.1, 2), 1), ((0.1, 1), (0.3, 2), 2), ((0.2, 1), (0.2001, 2), 0), ((0.2, 1), (0.2, 1), 0)],
)
def test_the_comparison_is_the_scorers(first: tuple[float, int], second: tuple[float, int], winner: int) -> None:
    a, b = (replicates(level, draw=draw, shift=0.01) for level, draw in (first, second))
    expected = scorers(ScoredEntry(first[0], a), ScoredEntry(second[0], b))
    found = paired_test.compare(first[0], second[0], replicates=(replicates_as_data(a), replicates_as_data(b)))
    assert found.difference == expected.difference
    assert found.standard_error == expected.standard_error
    assert found.interval == expected.interval
    assert found.p_value == pytest.approx(expected.p_value, rel=1e-12)
    assert found.winner == winner


def test_the_level_is_the_scorers() -> None:
    assert paired_test.SIGNIFICANCE == SIGNIFICANCE


def test_scores_that_differ_without_any_spread_differ_for_sure() -> None:
    sides = replicates_as_data(replicates(0.3)), replicates_as_data(replicates(0.1))
    assert paired_test.compare(0.3, 0.1, replicates=sides).p_value == 0.0


@pytest.mark.parametrize("other", [{"seed": 1}, {"size": 41}])
def test_replicates_drawn_otherwise_are_refused(other: dict[str, int]) -> None:
    sides = replicates_as_data(replicates(0.3)), replicates_as_data(replicates(0.3, **other))
    with pytest.raises(Conflict, match="cannot be paired"):
        paired_test.compare(0.3, 0.3, replicates=sides)


def test_scores_without_replicates_are_refused() -> None:
    with pytest.raises(Conflict, match="no replicates"):
        paired_test.compare(0.3, 0.3, replicates=(None, replicates_as_data(replicates(0.3))))


def test_replicates_without_a_value_are_refused() -> None:
    broken = replicates(0.3)
    broken.headline[0] = np.nan
    with pytest.raises(Conflict, match="utility ratio"):
        paired_test.compare(0.3, 0.3, replicates=(replicates_as_data(broken), replicates_as_data(replicates(0.3))))
