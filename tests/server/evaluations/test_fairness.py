"""Who is served next: the class, then rounds of the teams, then the oldest; at a flat cost."""

import json
import threading
from collections import Counter, deque
from datetime import UTC, datetime

import pytest
from sqlalchemy import event, text, update
from sqlalchemy.orm import Session

from benchmarks.platform.claims import competition_file as big_competition_file
from benchmarks.platform.claims import seed
from server.db import Database, clock, database_time
from server.evaluations import lease_reaper, leases, queue_repository, rerun
from server.evaluations.claimed_shard import ClaimedShard
from server.migrate import upgrade
from server.models.competition import Competition, Split, Team
from server.models.evaluation import Evaluation, Shard, ShardKind
from server.models.submission import Submission
from tests.server.evaluations.conftest import Submit, add_submission
from tests.support.leases import claim, close

WORKERS = 10
TEAMS = 40


def get_team(database: Database, shard: ClaimedShard) -> str:
    with database.read() as session:
        return session.get_one(Team, session.get_one(Shard, shard.shard_id).team_id).name


def claim_or_none(database: Database) -> ClaimedShard | None:
    with database.write() as session:
        return leases.claim(session, worker="w", lease_s=60)


def test_a_flooding_team_delays_no_other(database: Database, submit: Submit) -> None:
    """40 teams, 10 workers whose shards all take equally long; one team comes first, with 30 submissions."""
    for _ in range(30):
        submit("flood")
    for number in range(1, TEAMS):
        submit(f"team-{number:02d}")
    busy: deque[ClaimedShard] = deque()
    served: list[str] = []
    first_served: dict[str, int] = {}
    for turn in range(3 * TEAMS):  # three shards of each
        shard = claim(database)
        name = get_team(database, shard)
        first_served.setdefault(name, turn)
        served.append(name)
        busy.append(shard)
        if len(busy) == WORKERS:
            close(database, busy.popleft())
    others = [turn for name, turn in first_served.items() if name != "flood"]
    assert len(first_served) == TEAMS
    assert len(others) == TEAMS - 1
    assert set(Counter(served).values()) == {3}  # one evaluation of each in the first round, whatever the flood queued
    assert all(served[at : at + 3] == [served[at]] * 3 for at in range(0, 3 * TEAMS, 3)), "what has begun ends first"


def test_smoke_runs_of_a_flood_delay_no_score(database: Database, competition: Competition, submit: Submit) -> None:
    """One smoke run of a team at a time goes before every team's runs; the next ones wait for the team's turn."""
    for _ in range(30):
        add_submission(database, competition, "flood", smoke=True)
    small = submit("small")
    served = [claim(database) for _ in range(7)]
    assert (served[0].kind, get_team(database, served[0])) == (ShardKind.SMOKE, "flood")
    assert [shard.submission_id for shard in served].count(small.id) == 3, "in turns with the flood"


def test_first_smoke_run_of_a_team_goes_before_all_runs(database, competition, submit):
    submit("early")
    late = add_submission(database, competition, "late", smoke=True)
    first = claim(database)
    assert first.submission_id == late.id
    again = add_submission(database, competition, "late", smoke=True)
    close(database, first)
    assert claim(database).submission_id != again.id, "while one was open, this one was not to go first"
    third = add_submission(database, competition, "third", smoke=True)
    assert claim(database).submission_id == third.id


def test_baselines_go_last_with_their_smoke_runs(database: Database, competition: Competition, submit: Submit) -> None:
    add_baseline_team(database, competition)
    baseline = add_submission(database, competition, "baseline", smoke=True)
    late = submit("late")
    assert [claim(database).submission_id for _ in range(4)] == [late.id] * 3 + [baseline.id]


def add_baseline_team(database: Database, competition: Competition) -> None:
    """Make the team by a submission that nobody serves any more."""
    add_submission(database, competition, "baseline")
    with database.write() as session:
        session.execute(update(Team).where(Team.name == "baseline").values(is_baseline=True))
        session.execute(update(Shard).where(Shard.team_id == Team.id, Team.is_baseline).values(state="done"))


def test_priorities_go_from_smoke_runs_to_baselines(database, competition, submit):
    """Queued in the opposite order, and by one team except for the baseline, so that nothing but priority decides."""
    add_baseline_team(database, competition)
    baseline = add_submission(database, competition, "baseline")
    judged = submit("a")
    repeated = submit("a")
    with database.write() as session:
        session.execute(update(Shard).where(Shard.team_id != baseline.team_id).values(state="done"))
        split = session.query(Split).filter_by(visibility="public").one()
        rerun.beside(session, session.get_one(Submission, judged.id), split, rejudging_id="r")
    ordinary = submit("a")
    with database.write() as session:
        split = session.query(Split).filter_by(visibility="public").one()
        session.execute(update(Evaluation).where(Evaluation.submission_id == repeated.id).values(state="scored"))
        rerun.instead(session, session.get_one(Submission, repeated.id), split)
    smoke = add_submission(database, competition, "a", smoke=True)
    order = [shard.submission_id for shard in iter(lambda: claim_or_none(database), None)]
    firsts = list(dict.fromkeys(order))
    assert firsts == [smoke.id, repeated.id, ordinary.id, judged.id, baseline.id]


def test_claim_is_held_to_the_splits_that_the_worker_serves(database, competition, submit):
    submit("public")
    private = add_submission(database, competition, "private", visibility="private")
    with database.write() as session:
        split = session.query(Split).filter_by(visibility="private").one()
        shards = [leases.claim(session, worker="w", lease_s=60, splits=[split.id]) for _ in range(4)]
        assert [shard and shard.submission_id for shard in shards] == [private.id] * 3 + [None]
        assert leases.claim(session, worker="w", lease_s=60, splits=[]) is None


def test_parallel_claims_take_different_shards_without_waiting(migrated_postgres_url):
    database = Database(migrated_postgres_url)
    seed(database, big_competition_file(), teams=1, shards=64)
    taken: list[int] = []
    all_hold = threading.Barrier(8)

    def take() -> None:
        with database.write() as session:
            shard = leases.claim(session, worker="w", lease_s=60)
            all_hold.wait(30)  # nobody commits before everybody has a shard
            taken.append(shard.shard_id if shard else -1)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    database.dispose()
    assert -1 not in taken
    assert len(set(taken)) == 8


def blocks_of_a_claim(url: str, *, shards: int, teams: int) -> tuple[int, str]:
    """Return how many pages one claim reads on a queue of that length, and the plan."""
    database = Database(url)
    seed(database, big_competition_file(), teams=teams, shards=shards)
    statements: list[tuple[str, object]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        statements.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    with database.write() as session:
        queue_repository.take_fairest(session, worker="w", lease_s=60, splits=None)
    statement, parameters = next(pair for pair in statements if "heads" in pair[0])
    event.remove(database.engine, "before_cursor_execute", note)
    with database.engine.begin() as connection:
        explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
        plan = connection.exec_driver_sql(explain + statement, parameters).scalar_one()  # type: ignore[arg-type]
    database.dispose()
    return plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"], json.dumps(plan)


def test_claim_reads_as_much_of_a_long_queue_as_of_a_short_one(postgres_server):
    found = {}
    for shards in (2_000, 40_000):
        url = postgres_server.url(postgres_server.create_database())
        upgrade(url)
        found[shards], plan = blocks_of_a_claim(url, shards=shards, teams=50)
    assert "ix_shards_order" in plan
    assert found[40_000] <= 1.5 * found[2_000], found


def test_lease_ends_by_the_databases_clock(database: Database, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    submit("a")
    monkeypatch.setattr("server.db.now", lambda: datetime(1999, 1, 1, tzinfo=UTC))
    shard = claim(database, lease_s=60)
    with database.read() as session:
        left = session.get_one(Shard, shard.shard_id).lease_expires_at - clock(session)  # type: ignore[operator]
    assert 50 < left.total_seconds() <= 60


def test_clock_set_back_does_not_extend_a_dead_workers_lease(database: Database, submit: Submit) -> None:
    submit("a")
    shard = claim(database, lease_s=60)
    with database.write() as session:  # as seen after the clock went back by an hour
        session.execute(update(Shard).where(Shard.id == shard.shard_id).values(lease_expires_at=database_time(3660)))
    with database.write() as session:
        assert lease_reaper.sweep(session, clock(session), max_attempts=3, lease_s=60).leases_lost == 0
        left = session.get_one(Shard, shard.shard_id, populate_existing=True).lease_expires_at
        assert left is not None
        assert (left - clock(session)).total_seconds() <= 60


def test_deadlock_is_tried_again(migrated_postgres_url: str) -> None:
    database = Database(migrated_postgres_url)
    with database.write() as session:
        for name in "ab":
            session.execute(
                text(
                    "INSERT INTO accounts (id, name, name_key, password_hash, role, created_at) "
                    f"VALUES ('{name}', '{name}', '{name}', 'x', 'participant', now())"
                )
            )
    both_hold = threading.Barrier(2)
    tries: Counter[str] = Counter()
    mark = text("UPDATE accounts SET password_hash = password_hash || '.' WHERE id = :i")

    def swap(first: str, second: str) -> None:
        def step(session: Session) -> None:
            tries[first] += 1
            session.execute(mark, {"i": first})
            if sum(tries.values()) <= 2:
                both_hold.wait(10)
            session.execute(mark, {"i": second})

        database.retrying(step)

    threads = [threading.Thread(target=swap, args=pair) for pair in ("ab", "ba")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as session:
        assert session.execute(text("SELECT password_hash FROM accounts")).scalars().all() == ["x..", "x.."]
    database.dispose()
    assert sum(tries.values()) == 3


def test_claim_does_not_wait_for_whoever_holds_the_teams_row(migrated_postgres_url: str) -> None:
    """An upload counts its quota with the team's row in its hands."""
    database = Database(migrated_postgres_url)
    seed(database, big_competition_file(), teams=1, shards=16)
    with database.write() as upload:
        upload.execute(text("SELECT id FROM teams FOR UPDATE"))
        with database.write() as session:
            session.execute(text("SET LOCAL lock_timeout = '5s'"))
            assert leases.claim(session, worker="w", lease_s=60) is not None
    database.dispose()


def test_new_evaluation_of_a_team_comes_in_the_present_round(database, competition, submit):
    """Who was served often before and has nothing left waits no longer than the others; who has much left, does."""
    first, second, third = (submit("flood") for _ in range(3))
    for _ in range(3):
        close(database, claim(database))
    new = submit("new")
    fourth = submit("flood")
    order = [claim(database).submission_id for _ in range(12)]
    assert list(dict.fromkeys(order)) == [second.id, new.id, third.id, fourth.id]
    assert first.id not in order


def test_evaluation_that_has_begun_ends_before_the_next_begins(database: Database, submit: Submit) -> None:
    begun, other = submit("a"), submit("b")
    lost = claim(database)
    with database.write() as session:
        assert leases.hand_over(session, lost, runs_done=0)
    assert [claim(database).submission_id for _ in range(4)] == [begun.id] * 3 + [other.id]


def test_competitions_share_the_workers(migrated_postgres_url: str) -> None:
    """One of 200 teams, another of one: the other's shard is the second that is claimed."""
    database = Database(migrated_postgres_url)
    seed(database, big_competition_file(), teams=200, shards=1600)
    with database.engine.begin() as connection:
        for statement in (
            """INSERT INTO competitions SELECT (jsonb_populate_record(c, '{"id": "d", "slug": "other"}')).*
               FROM competitions c""",
            """INSERT INTO splits SELECT (jsonb_populate_record(s, '{"id": "e", "competition_id": "d"}')).*
               FROM splits s WHERE visibility = 'public'""",
            "UPDATE shards SET split_id = 'e', competition_id = 'd' WHERE id = (SELECT max(id) FROM shards)",
        ):
            connection.execute(text(statement.replace(":", "\\:")))
    with database.write() as session:
        taken = [queue_repository.take_fairest(session, worker="w", lease_s=60, splits=None) for _ in range(3)]
        assert [shard and shard.competition_id for shard in taken] == ["c", "d", "c"]
    database.dispose()
