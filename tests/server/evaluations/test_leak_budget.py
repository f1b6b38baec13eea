"""The leak budget: what a failure on hidden data may tell its team, counted for each team and UTC day."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lethe.runtime.error_classes import ErrorClass
from server.api.submissions.schemas import FailureOut
from server.db import Database
from server.evaluations import evaluation_repository, leak_budget, leases, rerun
from server.evaluations.claimed_shard import ShardFailure
from server.evaluations.leak_budget import estimate_price
from server.models.competition import Competition, Split, Team
from server.models.evaluation import Disclosure, Evaluation, Shard
from server.models.submission import Fault, Submission
from server.teams import team_repository
from tests.server.evaluations.conftest import N, Submit, add_submission

DETAIL_BITS = 14.0
MIN_PRICE = estimate_price(detail_bits=0, n_runs=N).least
WHOLE = estimate_price(detail_bits=DETAIL_BITS, n_runs=N).whole
FAILURE = ShardFailure(
    fault=Fault.PARTICIPANT,
    error_class=ErrorClass.EXCEPTION,
    message="It raised. See a.py, line 7.",
    run=3,
    exception_type="ValueError",
    file="a.py",
    line=7,
    class_message="It raised.",
    detail_bits=DETAIL_BITS,
)

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)

Fail = Callable[..., FailureOut]


@pytest.fixture
def fail(database: Database, submit: Submit) -> Fail:
    """Send a submission of a team, let it fail, and return what the team is told."""
    return lambda team, failure=FAILURE: failed(database, submit(team), failure)


def failed(database: Database, submission: Submission, failure: ShardFailure) -> FailureOut:
    with database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
    assert shard is not None
    assert shard.submission_id == submission.id
    with database.write() as session:
        assert leases.fail(session, shard, failure, runs_done=3)
    return told(database, submission)


def told(database: Database, submission: Submission) -> FailureOut:
    with database.read() as session:
        out = FailureOut.of(session.get_one(Submission, submission.id))
    assert out is not None
    return out


def set_budget(database: Database, bits: float) -> None:
    with database.write() as session:
        competition = session.query(Competition).one()
        limits = {**competition.config["limits"], "leak_bits_per_day": bits}
        competition.config = {**competition.config, "limits": limits}


@pytest.fixture(autouse=True)
def _one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no day end within a test."""
    monkeypatch.setattr(leak_budget, "now", lambda: NOON)


def test_every_class_of_errors_is_paid_for() -> None:
    assert sum(bool(one.message) for one in ErrorClass) < leak_budget.CLASSES


def test_details_are_told_while_they_fit_and_the_class_always(database: Database, fail: Fail) -> None:
    set_budget(database, 2 * WHOLE + 1)
    first, second, third = fail("a"), fail("a"), fail("a")
    for out in (first, second):
        assert (out.error_class, out.exception_type, out.file, out.line) == ("exception", "ValueError", "a.py", 7)
        assert not out.withheld
    assert first.bits == round(WHOLE, 1)
    assert second.remaining_bits == 1.0
    assert (third.error_class, third.exception_type, third.file, third.line) == ("exception", None, None, None)
    assert third.withheld
    assert (third.bits, third.remaining_bits) == (round(MIN_PRICE, 1), 0.0)
    assert third.renews_at == datetime(2031, 5, 7, tzinfo=UTC)
    assert third.message is not None
    assert third.message.startswith("It raised. ")
    assert "2031-05-07 00:00 UTC" in third.message
    assert "line 7" not in third.message


def test_each_team_has_a_budget_of_its_own_for_each_utc_day(database, fail, monkeypatch):
    set_budget(database, WHOLE)
    assert [fail(team).withheld for team in ("a", "a", "b")] == [False, True, False]
    monkeypatch.setattr(leak_budget, "now", lambda: NOON + timedelta(hours=12))
    assert not fail("a").withheld


def test_no_budget_tells_classes_only_and_organisers_all_of_it(database: Database, fail: Fail) -> None:
    set_budget(database, 0)
    out = fail("a")
    assert (out.error_class, out.exception_type, out.line, out.withheld) == ("exception", None, None, True)
    assert "renews" not in (out.message or "renews")
    with database.read() as session:
        error = session.query(Evaluation).one().error or {}
    assert (error["message"], error["line"]) == (FAILURE.message, 7)


def test_details_whose_price_is_not_known_need_a_budget_too(database: Database, submit: Submit) -> None:
    set_budget(database, 0)
    unpriced = ShardFailure(
        fault=Fault.PARTICIPANT, error_class=ErrorClass.EXCEPTION, message="no", run=1, line=7, file="a.py"
    )
    assert failed(database, submit("a"), unpriced).line is None


def test_public_sample_and_faults_of_this_side_cost_nothing(database, competition, sent):
    set_budget(database, 0)
    smoke = failed(database, add_submission(database, competition, "a", smoke=True), FAILURE)
    assert (smoke.line, smoke.withheld, smoke.bits) == (7, False, None)
    host = ShardFailure(fault=Fault.HOST, error_class=ErrorClass.HOST_FAULT, message="ours", run=0)
    with database.write() as session:  # the first submission's other shards went with it
        assert session.query(Disclosure).count() == 0
    assert failed(database, add_submission(database, competition, "b"), host).message == "ours"
    with database.read() as session:
        assert session.query(Disclosure).count() == 0


def test_running_a_submission_again_gives_nothing_back(database, fail, submit, competition):
    set_budget(database, WHOLE + MIN_PRICE)
    fail("a")
    with database.write() as session:
        submission = session.query(Submission).one()
        split = session.query(Split).filter_by(visibility="public").one()
        first = session.query(Shard).order_by(Shard.id).first()
        assert first is not None
        first.kind, first.state = "smoke", "done"  # whose code has not run well on the sample begins there
        rerun.instead(session, submission, split)
    assert failed(database, submission, FAILURE).withheld


def test_a_merged_team_has_spent_what_both_have(database: Database, fail: Fail) -> None:
    set_budget(database, WHOLE)
    fail("a")
    with database.write() as session:
        a = session.query(Team).filter_by(name="a").one()
    fail("b")
    with database.write() as session:
        b = session.query(Team).filter_by(name="b").one()
        team_repository.move_everything(session, team_id=a.id, into_id=b.id)
    with database.write() as session:
        spent = leak_budget.evaluation_repository.bits_told(
            session, b.id, since=datetime(2000, 1, 1, tzinfo=UTC), before=datetime(3000, 1, 1, tzinfo=UTC)
        )
    assert spent == pytest.approx(2 * WHOLE)


def test_failures_at_the_same_moment_share_one_budget(database, submit, monkeypatch):
    set_budget(database, WHOLE)
    submissions = [submit("a") for _ in range(3)]
    with database.read() as session:
        ids = [session.query(Evaluation).filter_by(submission_id=each.id).one().id for each in submissions]
    together = threading.Barrier(len(ids))
    outcomes: list[Any] = []
    counted = leak_budget.evaluation_repository.bits_told

    def counted_slowly(*args: Any, **kwargs: Any) -> float:
        bits = counted(*args, **kwargs)
        time.sleep(0.2)  # whoever does not wait for the others now spends what they spend
        return bits

    monkeypatch.setattr(leak_budget.evaluation_repository, "bits_told", counted_slowly)

    def end(evaluation_id: str) -> None:
        together.wait()
        with database.write() as session:
            evaluation = evaluation_repository.lock_evaluation(session, evaluation_id)
            submission = session.get_one(Submission, evaluation.submission_id)
            evaluation.error = {
                "message": "x y", "class_message": "x", "line": 7, "on_hidden_data": True, "detail_bits": DETAIL_BITS
            }  # fmt: skip
            outcomes.append(leak_budget.disclose(session, evaluation, submission, budget=WHOLE))

    threads = [threading.Thread(target=end, args=(each,)) for each in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome["withheld"] for outcome in outcomes) == [False, True, True]
