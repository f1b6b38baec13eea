"""The few statements of a lease: how many they are, and that they count the runs of the other shards and their own."""

import threading
from collections.abc import Callable

from sqlalchemy import event

from server.db import Database
from server.evaluations import lease_repository, leases
from server.evaluations.lease_repository import EvaluationRuns
from server.models.competition import Competition
from server.models.submission import Submission
from server.queue import SCORE_EVALUATION
from tests.server.evaluations.conftest import SHARD_RUNS, Submit, add_submission
from tests.support.leases import claim, close, stage

WALL_TIME_S = 8 * 3600.0


def statements(database: Database, step: Callable[[], object]) -> int:
    """Return how many statements `step` sends, without the ends of its transactions."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):  # on SQLite, we send it ourselves
            sent.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    step()
    event.remove(database.engine, "before_cursor_execute", note)
    return len(sent)


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


def test_close_that_passes_the_wall_time_ends_the_evaluation(database: Database, submit: Submit) -> None:
    submission = submit("a")
    first, second = claim(database), claim(database)
    assert close(database, first, wall_time_s=WALL_TIME_S - 10)
    assert stage(database, submission) == "running"
    assert close(database, second, wall_time_s=11.0)
    with database.read() as session:
        ended = session.get_one(Submission, submission.id)
        assert (ended.stage, ended.error_class) == ("failed", "evaluation-timeout")


def test_smoke_run_costs_the_evaluation_no_time(database: Database, competition: Competition, sent: list[str]) -> None:
    submission = add_submission(database, competition, "a", smoke=True)
    assert close(database, claim(database), wall_time_s=2 * WALL_TIME_S)
    assert stage(database, submission) == "running"
    shard = claim(database)
    assert shard.n_runs == SHARD_RUNS
    assert close(database, shard, wall_time_s=WALL_TIME_S - 1)
    assert stage(database, submission) == "running"


def test_shards_closed_at_once_have_one_last(database: Database, submit: Submit, sent: list[str]) -> None:
    submission = submit("a")
    shards = [claim(database) for _ in range(3)]
    together = threading.Barrier(len(shards))
    closed: list[bool] = []

    def end(number: int) -> None:
        together.wait(30)
        closed.append(close(database, shards[number]))

    threads = [threading.Thread(target=end, args=(number,)) for number in range(len(shards))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert closed == [True, True, True]
    assert sent.count(SCORE_EVALUATION) == 1
    assert stage(database, submission) == "scoring"
