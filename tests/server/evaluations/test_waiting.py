"""Why a submission waits, and about how long."""

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from server.db import Database, clock, database_time
from server.evaluations import evaluations, unserved
from server.evaluations.unserved import Wait, find_wait
from server.models.account import Account, AuditEvent
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, Shard, ShardAttempt
from server.models.submission import Submission
from server.models.worker import Worker, WorkerToken
from server.workers import registration
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
    assert wait_of(database, submit("a")) == Wait(unserved.NO_WORKER, 0, None)


def test_worker_that_the_split_refuses_does_not_count(database: Database, submit: Submit) -> None:
    mine = submit("a")
    with database.write() as session:
        split_id = session.query(Split).filter_by(visibility="public").one().id
        session.add(Worker(name="w-1", device="cuda", memory_mib=1, versions={}, refusals={split_id: "cpu only"}))
    assert wait_of(database, mine) == Wait("no worker that is there may do it: cpu only", 0, None)


@pytest.mark.usefixtures("worker")
def test_reasons_follow_the_order_of_the_queue(database: Database, submit: Submit) -> None:
    first, second, other = submit("a"), submit("a"), submit("b")
    assert wait_of(database, first) == Wait(unserved.NEXT, 0, None)
    assert wait_of(database, second) == Wait(unserved.OWN_FIRST, 2, None)
    assert wait_of(database, other) == Wait(unserved.IN_QUEUE, 1, None)


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
    assert wait_of(database, other) == Wait(unserved.IN_QUEUE, 1, None), "an old pace tells nothing"


def test_submission_whose_runs_began_waits_for_nothing(database: Database, submit: Submit) -> None:
    mine = submit("a")
    claim(database)
    assert wait_of(database, mine) is None


def test_runs_that_wait_for_checks_nobody_may_make_say_so(database: Database, submit: Submit) -> None:
    """As where an organiser's own machine has made them, and no worker of the server is there."""
    mine = submit("a")
    with database.write() as session:
        competition = session.query(Competition).one()
        account = session.query(Account).first()
        assert account is not None
        token = WorkerToken(
            competition_id=competition.id, name="lab", token_hash="x", created_by=account.id, expires_at=clock(session)
        )
        session.add(token)
        session.flush()
        session.add(Worker(name="lab/w-1", token_id=token.id, device="cpu", memory_mib=1, versions={}))
        for shard in session.query(Shard):
            shard.state, shard.token_id = "done", token.id
        evaluation = session.query(Evaluation).one()
        evaluations.queue_checks(session, evaluation, session.get_one(Submission, mine.id), [(0, 1)])
    assert wait_of(database, mine) == Wait(unserved.TRUSTED_ONLY, 0, None)
    with database.read() as session:
        [found] = unserved.find_unserved(session)
        assert (found.shards, found.reason) == (1, unserved.TRUSTED_ONLY)
    with database.write() as session:
        session.add(Worker(name="w-1", device="cpu", memory_mib=1, versions={}))
    assert wait_of(database, mine) is None
    with database.read() as session:
        assert unserved.find_unserved(session) == []


@pytest.mark.parametrize("state", ["draining", "quarantined"])
def test_workers_that_take_nothing_serve_nothing(database: Database, submit: Submit, state: str) -> None:
    mine = submit("a")
    with database.write() as session:
        session.add(Worker(name="w-1", state=state, device="cpu", memory_mib=1, versions={}))
    wait = wait_of(database, mine)
    assert wait is not None
    assert wait.reason == unserved.NO_TAKING_WORKER.format(states=state)


def test_killed_worker_is_shown_as_stopped(database: Database, submit: Submit) -> None:
    submit("a")
    claim(database)
    long_ago = database_time(-300)
    with database.write() as session:
        for name in ("killed", "w"):
            session.merge(Worker(name=name, device="cpu", memory_mib=1, versions={}, seen_at=long_ago))
        assert registration.note_silent(session) == 1
    with database.read() as session:
        killed = session.get_one(Worker, "killed")
        assert (killed.state, killed.detail) == ("stopped", "not heard of for 60 s: killed, or cut off")


def told(database: Database) -> int:
    with database.write() as session:
        return unserved.tell_organisers(session)


def test_organisers_are_told_once_of_work_that_nobody_can_do(database: Database, submit: Submit) -> None:
    submit("a")
    assert told(database) == 0, "a minute without a worker is no reason to write"
    with database.write() as session:
        session.execute(update(Shard).values(queued_at=database_time(-700)))
        session.add(Worker(name="w-1", device="cpu", memory_mib=1, versions={}, state="stopped"))
    assert told(database) == 0, "workers are being restarted"
    with database.write() as session:
        session.execute(update(Worker).values(seen_at=database_time(-700)))
    assert [told(database), told(database)] == [1, 0]
    with database.read() as session:
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == unserved.NOTIFICATION)).one()
        assert event.data == {"found": unserved.NO_WORKER}
