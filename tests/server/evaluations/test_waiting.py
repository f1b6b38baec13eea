"""Why a submission waits, and about how long."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from server.db import Database, clock
from server.evaluations import waiting
from server.evaluations.waiting import Wait, find_wait
from server.models.competition import Split
from server.models.evaluation import ShardAttempt
from server.models.submission import Submission
from server.models.worker import Worker
from tests.server.evaluations.conftest import N, Submit
from tests.support.leases import claim, close


def wait_of(database: Database, submission: Submission) -> Wait | None:
    with database.read() as session:
        return find_wait(session, submission)


@pytest.fixture
def worker(database: Database) -> None:
    with database.write() as session:
        session.add(Worker(name="w-1", device="cpu", memory_mib=1, versions={}))


def test_submission_without_a_worker_says_so(database: Database, submit: Submit) -> None:
    assert wait_of(database, submit("a")) == Wait(waiting.NO_WORKER, 0, None)


def test_worker_that_the_split_refuses_does_not_count(database: Database, submit: Submit) -> None:
    mine = submit("a")
    with database.write() as session:
        split_id = session.query(Split).filter_by(visibility="public").one().id
        session.add(Worker(name="w-1", device="cuda", memory_mib=1, versions={}, refusals={split_id: "cpu only"}))
    assert wait_of(database, mine) == Wait(waiting.NO_WORKER, 0, None)


@pytest.mark.usefixtures("worker")
def test_reasons_follow_the_order_of_the_queue(database: Database, submit: Submit) -> None:
    first, second, other = submit("a"), submit("a"), submit("b")
    assert wait_of(database, first) == Wait(waiting.NEXT, 0, None)
    assert wait_of(database, second) == Wait(waiting.OWN_FIRST, 2, None)
    assert wait_of(database, other) == Wait(waiting.IN_QUEUE, 1, None)


@pytest.mark.usefixtures("worker")
def test_time_is_the_runs_before_it_by_the_pace_of_the_last_minutes(database: Database, submit: Submit) -> None:
    _, other = submit("a"), submit("b")
    done = claim(database)
    close(database, done)
    wait = wait_of(database, other)
    assert wait is not None
    assert wait.seconds == pytest.approx((N - done.n_runs) / (done.n_runs / 900))
    with database.write() as session:
        session.execute(update(ShardAttempt).values(ended_at=clock(session) - timedelta(hours=1)))
    assert wait_of(database, other) == Wait(waiting.IN_QUEUE, 1, None), "an old pace tells nothing"


def test_submission_whose_runs_began_waits_for_nothing(database: Database, submit: Submit) -> None:
    mine = submit("a")
    claim(database)
    assert wait_of(database, mine) is None
