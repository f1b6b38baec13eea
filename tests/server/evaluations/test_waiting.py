"""Why a submission waits; hosts out of service; what a team sees of its runs on hidden data."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from lethe.errors import InvalidInput, NotFound
from server.db import Database, clock, database_time
from server.disclosure.shown_progress import STEPS, shown_progress
from server.evaluations import evaluations, unserved
from server.evaluations.evaluations import AttemptEntry, EvaluationProgress
from server.evaluations.unserved import Wait, find_wait
from server.models.account import Account, AuditEvent
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, Shard, ShardAttempt, ShardState
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


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (None, unserved.NO_WORKER),
        ({"refusals": "cpu only"}, "no worker that is there may do it: cpu only"),
        ({"state": "draining"}, unserved.NO_TAKING_WORKER.format(states="draining")),
        ({"state": "quarantined"}, unserved.NO_TAKING_WORKER.format(states="quarantined")),
    ],
)
def test_submission_that_no_worker_serves_says_so(database, submit, values, reason):
    mine = submit("a")
    if values is not None:
        with database.write() as session:
            split_id = session.query(Split).filter_by(visibility="public").one().id
            given = values | {"refusals": {split_id: why} if (why := values.get("refusals")) else {}}
            session.add(Worker(name="w-1", device="cpu", memory_mib=1, versions={}, **given))
    wait = wait_of(database, mine)
    assert (wait.reason, wait.seconds) == (reason, None)


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


@pytest.fixture
def two_hosts(database: Database) -> None:
    with database.write() as session:
        session.add_all(
            Worker(name=name, device="cpu", memory_mib=1, versions={}) for name in ("a-b-1", "a-b-2", "a-3")
        )


@pytest.mark.usefixtures("two_hosts")
def test_cordoned_host_gives_its_reason_to_all_its_processes(database: Database) -> None:
    with database.write() as session:
        registration.cordon(session, "a-b", why="a new disk", actor=None)
        assert [registration.reason(session, name) for name in ("a-b-1", "a-b-77", "a-3")] == [
            "cordoned: a new disk",
            "cordoned: a new disk",
            "",
        ]
        registration.uncordon(session, "a-b", actor=None)
        assert not registration.reason(session, "a-b-1")
        actions = session.scalars(select(AuditEvent.action).where(AuditEvent.action.like("host.%"))).all()
    assert actions == ["host.cordoned", "host.uncordoned"]


@pytest.mark.usefixtures("two_hosts")
def test_drained_host_returns_its_shards_alone(database: Database, submit: Submit) -> None:
    submit("team")
    held = claim(database, worker="a-b-1")
    kept = claim(database, worker="a-3")
    with database.write() as session:
        assert registration.cordon(session, "a-b", why="a new disk", actor=None, drain=True) == 1
        back, left = (session.get_one(Shard, each.shard_id, populate_existing=True) for each in (held, kept))
        assert (back.state, back.failed_attempts) == (ShardState.QUEUED.value, 0)
        assert left.state == ShardState.LEASED.value


@pytest.mark.usefixtures("two_hosts")
def test_cordon_refuses_an_unknown_host_and_an_empty_reason(database: Database) -> None:
    with database.write() as session:
        with pytest.raises(NotFound, match=r"'elsewhere'; they came from: a, a-b"):
            registration.cordon(session, "elsewhere", why="x", actor=None)
        with pytest.raises(InvalidInput, match="why"):
            registration.cordon(session, "a", why=" ", actor=None)
        with pytest.raises(NotFound, match="not cordoned"):
            registration.uncordon(session, "a", actor=None)


AT = datetime(2026, 3, 1, 12, 30, 20, tzinfo=UTC)
TOTAL, SHARD = 512, 32


def seen(
    done: int, *attempts: AttemptEntry, is_over: bool = False, at: datetime = AT, elapsed_s: float = 64.7
) -> EvaluationProgress:
    exact = EvaluationProgress(
        runs_done=done, runs_total=TOTAL, elapsed_s=elapsed_s, remaining_s=1.0, attempts=attempts
    )
    return shown_progress(exact, is_over=is_over, at=at)


def runs(
    *, first: int = 0, began_s: float, ended_s: float | None = None, kind: str = "runs", outcome: str = "done"
) -> AttemptEntry:
    """Return an attempt at a shard that began, and ended, so many seconds before AT."""
    ended = None if ended_s is None else AT - timedelta(seconds=ended_s)
    outcome = "running" if ended is None else outcome
    return AttemptEntry(first, first + SHARD - 1, kind, 1, outcome, AT - timedelta(seconds=began_s), ended)


def shards(number: int, *, ended_s: float) -> list[AttemptEntry]:
    """Return so many shards that are done."""
    return [runs(first=SHARD * place, began_s=ended_s + 60, ended_s=ended_s) for place in range(number)]


@pytest.mark.parametrize("number", range(16))
def test_runs_done_move_in_quarters_and_never_ahead(number: int) -> None:
    shown = seen(SHARD * number + 3, *shards(number, ended_s=90)).runs_done
    assert shown == number // 4 * (TOTAL // STEPS)


def test_runs_done_within_a_shard_or_a_minute_change_nothing() -> None:
    ended, ending = shards(8, ended_s=90), runs(first=8 * SHARD, began_s=80, ended_s=15)
    known = seen(8 * SHARD, *ended)
    for done in (8 * SHARD + 1, 15 * SHARD):
        assert seen(done, *ended) == known
    full = [*shards(11, ended_s=90), replace_end(11, 15)]
    assert seen(12 * SHARD, *full).runs_done == 256, "the last quarter's minute is not over"
    assert seen(12 * SHARD, *full, at=AT + timedelta(seconds=40)).runs_done == 384
    assert seen(9 * SHARD, *ended, ending).runs_done == 256


def replace_end(place: int, ended_s: float) -> AttemptEntry:
    return runs(first=SHARD * place, began_s=80, ended_s=ended_s)


def test_time_left_follows_from_the_quarter_and_is_counted_down() -> None:
    def left(after_s: float) -> float | None:
        return seen(
            300, *shards(8, ended_s=80), at=AT + timedelta(seconds=after_s), elapsed_s=320 + after_s
        ).remaining_s

    assert left(0) == pytest.approx(280.0)  # at 12:30:00 the half was known to be done, after 300 s
    assert left(30) == pytest.approx(250.0)
    later = seen(400, *shards(8, ended_s=200), *(replace_end(place, 80) for place in (8, 9)), elapsed_s=320).remaining_s
    assert later == seen(300, *shards(8, ended_s=200), elapsed_s=320).remaining_s, (
        "shards within a quarter change nothing"
    )
    assert left(1e6) == 0.0
    assert seen(40, runs(began_s=200)).remaining_s is None
    assert seen(40, runs(began_s=200)).elapsed_s == 64


def test_runs_are_one_attempt_to_the_minute() -> None:
    attempts = [runs(began_s=200, ended_s=100), runs(first=32, began_s=90, ended_s=15), runs(first=64, began_s=5)]
    (shown,) = seen(40, *attempts).attempts
    assert (shown.first_run, shown.last_run, shown.outcome, shown.ended_at) == (0, 511, "running", None)
    assert shown.started_at == datetime(2026, 3, 1, 12, 27, tzinfo=UTC)
    (over,) = seen(40, *attempts, is_over=True).attempts
    assert over.ended_at == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    assert seen(0, runs(began_s=5)).attempts == (), "it began in this minute"


def test_lost_runs_are_told_after_their_minute() -> None:
    lost, late = (runs(began_s=200, ended_s=ended_s, outcome="lost") for ended_s in (100, 15))
    assert [entry.outcome for entry in seen(0, lost, late).attempts] == ["lost", "running"]
    assert seen(0, lost).attempts[0].ended_at == datetime(2026, 3, 1, 12, 28, tzinfo=UTC)


def test_outcome_of_all_runs_is_that_of_the_one_that_ended_them() -> None:
    failed = [*shards(2, ended_s=90), runs(first=64, began_s=80, ended_s=30, outcome="failed")]
    failed += [runs(first=96, began_s=80, ended_s=29, outcome="cancelled")]
    assert seen(70, *failed, is_over=True).attempts[-1].outcome == "failed"


def test_nothing_is_held_back_once_no_run_is_left() -> None:
    everything = [*shards(15, ended_s=90), runs(first=480, began_s=20, ended_s=1)]
    for is_over in (True, False):
        shown = seen(TOTAL, *everything, is_over=is_over)
        assert (shown.runs_done, shown.remaining_s, shown.elapsed_s) == (TOTAL, None, 120.0)


def test_smoke_run_is_told_as_it_is() -> None:
    smoke = runs(began_s=3, ended_s=1, kind="smoke")
    assert seen(0, smoke).attempts == (smoke,)
