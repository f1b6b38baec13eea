"""The queries of every day on a big instance: none walks through a complete table of submissions, shards or events."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Index, event, text
from sqlalchemy.orm import Session

from benchmarks.platform.claims import competition_file
from lethe.competition.visibility import Visibility
from server import audit
from server.audit import EventFilter
from server.dashboard import dashboard
from server.db import Database, now
from server.evaluations import lease_reaper, leases
from server.finals import finals
from server.leaderboard import boards
from server.migrate import upgrade
from server.models.account import Account
from server.models.competition import Competition
from server.models.registry import metadata
from server.prometheus import figures_repository
from server.submissions import submissions
from server.submissions import views as submission_views
from server.submissions.list_filter import Show
from server.teams import teams
from server.workers import worker_repository
from tests.support.postgres import PostgresServer


def _is_partial(index: Index) -> bool:
    return index.dialect_options["postgresql"]["where"] is not None


COMPETITIONS, TEAMS, SUBMISSIONS, SHARDS, EVENTS = 200, 5, 10, 4, 40_000
BIG = {"submissions", "evaluations", "shards", "shard_attempts", "public_scores", "audit_events", "run_logs"}
PARTIAL = {index.name for table in metadata.tables.values() for index in table.indexes if _is_partial(index)}

# Of each competition five teams with ten scored submissions of four shards; of one, a queue and some work in hand.
ROWS = (
    """INSERT INTO accounts (id, name, name_key, password_hash, role, created_at)
       SELECT 'a' || i, 'person-' || i, 'person-' || i, 'x', 'organiser', now() FROM generate_series(0, :teams) i""",
    """INSERT INTO competitions (id, slug, title, summary, state, opens_at, closes_at, config, source, created_at,
                                 created_by)
       SELECT 'c' || c, 'big-' || c, 'Big', '', 'open', now() - interval '1 day', now() + interval '1 day',
              CAST(:config AS json), '', now(), 'a0' FROM generate_series(0, :competitions) c""",
    """INSERT INTO splits (id, competition_id, visibility, state, stage, progress, attempt, error, manifest_sha256,
                           versions, retraining_time_s)
       SELECT 's' || c || v, 'c' || c, v, 'ready', '', 1, 1, '', repeat('0', 64), '{}', 1
       FROM generate_series(0, :competitions) c, unnest(ARRAY['public', 'private']) v""",
    """INSERT INTO teams (id, competition_id, name, name_key, leader_id, is_baseline, created_at)
       SELECT 't' || c || '-' || t, 'c' || c, 'team-' || t, 'team-' || t, 'a' || t, false, now()
       FROM generate_series(0, :competitions) c, generate_series(1, :teams) t""",
    """INSERT INTO memberships (team_id, account_id, competition_id, joined_at)
       SELECT id, leader_id, competition_id, now() FROM teams""",
    """INSERT INTO submissions (id, competition_id, team_id, account_id, filename, kind, content_sha256, size_bytes,
                                entry_point, message, request_id, received_at, stage, refunded, selected, finished_at)
       SELECT 'u' || row_number() OVER (), t.competition_id, t.id, t.leader_id, 'a.py', 'py', repeat('0', 64), 1,
              '{"file": "a.py"}', '', '', now() - i * interval '1 hour', 'scored', false, false, now()
       FROM teams t, generate_series(1, :submissions) i""",
    """INSERT INTO evaluations (id, submission_id, split_id, scorer_version, rejudging_id, is_current, state, n_runs,
                                priority, created_at, finished_at)
       SELECT 'e' || u.id, u.id, p.id, '1', '', true, 'scored', 512, 0, now(), now()
       FROM submissions u JOIN splits p ON p.competition_id = u.competition_id AND p.visibility = 'public'""",
    """INSERT INTO public_scores (evaluation_id, submission_id, final_score, forgetting_quality, retain_ratio,
                                  test_ratio, scorer_version, details, computed_at)
       SELECT id, submission_id, random(), 0.1, 1, 1, '1', '{}', now() FROM evaluations""",
    """INSERT INTO shards (evaluation_id, team_id, split_id, competition_id, kind, first_run, n_runs, state, turn,
                           attempt, failed_attempts, runs_done, wall_time_s, queued_at, claimed_at, lease_expires_at)
       SELECT e.id, u.team_id, e.split_id, u.competition_id, 'runs', k * 64, 64,
              CASE WHEN k = 0 AND u.competition_id = 'c1' THEN 'queued'
                   WHEN k = 1 AND u.competition_id = 'c1' THEN 'leased' ELSE 'done' END,
              0, 1, 0, 64, 1, now(), now() - interval '1 day',
              CASE WHEN k = 1 AND u.competition_id = 'c1' THEN now() + interval '1 hour' END
       FROM evaluations e JOIN submissions u ON u.id = e.submission_id, generate_series(0, :shards - 1) k""",
    """INSERT INTO shard_attempts (shard_id, attempt, worker, started_at, ended_at, outcome, runs_done, detail)
       SELECT id, 1, 'w', now() - interval '2 days', now() - interval '1 day', 'done', 64, ''
       FROM shards WHERE state = 'done'""",
    """INSERT INTO audit_events (at, actor, competition_id, action, subject, reason, data)
       SELECT now() - i * interval '1 minute', 'person-' || (i % 500), 'c' || (i % :competitions),
              CASE WHEN i % 1000 = 0 THEN 'competition.closed' ELSE 'submission.received' END, 'u' || i, '', '{}'
       FROM generate_series(1, :events) i""",
)
VALUES = {
    "competitions": COMPETITIONS,
    "teams": TEAMS,
    "submissions": SUBMISSIONS,
    "shards": SHARDS,
    "events": EVENTS,
    "config": competition_file().model_dump_json(),
}


@pytest.fixture(scope="module")
def big(postgres_server: PostgresServer) -> Iterator[Database]:
    name = postgres_server.create_database()
    upgrade(postgres_server.url(name))
    database = Database(postgres_server.url(name))
    with database.engine.begin() as connection:
        for row in ROWS:
            connection.execute(text(row), {key: value for key, value in VALUES.items() if f":{key}" in row})
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    yield database
    database.dispose()
    postgres_server.drop_database(name)


def walked_through(database: Database, act: Callable[[Session], object]) -> list[str]:
    """Do `act` and return each big table that a statement of it read from end to end, with the statement.

    The plans are those of statements that are often run, made for any values. Where another way exists at all, it is
    taken: what a planner prefers on a small table says little about a big one.
    """
    found: list[str] = []

    def explain(connection: Connection, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "UPDATE", "WITH", "DELETE")):
            return
        with connection.connection.driver_connection.cursor() as own:  # type: ignore[union-attr]
            own.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            own.execute("SET LOCAL enable_seqscan = off")
            own.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters, prepare=True)
            (plan,) = own.fetchone()[0]
        found.extend(f"{table}: {statement}" for table in sorted(BIG & scanned(plan["Plan"])))

    with database.write() as session:
        event.listen(database.engine, "before_cursor_execute", explain)
        try:
            act(session)
        finally:
            event.remove(database.engine, "before_cursor_execute", explain)
            session.rollback()
    return found


def scanned(plan: dict[str, Any]) -> set[str]:
    """Return the tables that the plan reads from end to end, by themselves or along an index that covers all rows."""
    own = set()
    along = plan.get("Index Name")
    if plan["Node Type"] == "Seq Scan" or (along and along not in PARTIAL and "Index Cond" not in plan):
        own.add(plan.get("Relation Name", along))
    return own.union(*(scanned(part) for part in plan.get("Plans", [])))


def competition(session: Session) -> Competition:
    return session.get_one(Competition, "c1")


def account(session: Session) -> Account:
    return session.get_one(Account, "a3")


def page_of_mine(session: Session, show: Show) -> object:
    of, mine = competition(session), teams.get_team(session, competition(session), account(session))
    return submissions.page_of_team(session, of, mine, show=show, final_ids=(), offset=0, limit=100)


ACTS: dict[str, Callable[[Session], object]] = {
    "the leaderboard": lambda s: boards.whole_board(s, competition(s), Visibility.PUBLIC),
    "the chart over time": lambda s: boards.scores_over_time(s, competition(s), ["t1-1", "t1-2"]),
    "a claim": lambda s: leases.claim(s, worker="w", lease_s=60),
    "an untrusted claim": lambda s: leases.claim(s, worker="t/w", lease_s=60, token_id="t"),
    "what a token's workers gave": lambda s: worker_repository.evaluations_with_results_of(s, "0123456789abcdef"),
    "a sweep": lambda s: lease_reaper.sweep(s, now(), max_attempts=3, lease_s=60),
    "the clock": lambda s: finals.tick(s, now()),
    "my submissions": lambda s: submission_views.view(s, submissions.list_own(s, competition(s), account(s))),
    "a page of my submissions": lambda s: page_of_mine(s, Show.NEWEST),
    "my best submissions": lambda s: page_of_mine(s, Show.BEST),
    "my quota": lambda s: submissions.get_quota(s, competition(s), account(s), at=now()),
    "the dashboard": lambda s: dashboard.get_dashboard(s, [competition(s)]),
    "the audit log of a competition": lambda s: audit.events(s, EventFilter(competition_id="c1")),
    "its next page": lambda s: audit.events(s, EventFilter(competition_id="c1"), before_id=20_000),
    "who did what in it": lambda s: audit.events(s, EventFilter(competition_id="c1", actor="person-3")),
    "what happened to one thing": lambda s: audit.events(s, EventFilter(subject="u17")),
    "an act anywhere": lambda s: audit.events(s, EventFilter(action="competition.closed")),
    "the figures for Prometheus": lambda s: figures_repository.figures(s, workers_seen_within_s=60.0),
}


@pytest.mark.parametrize("what", ACTS)
def test_no_query_of_every_day_walks_through_a_big_table(big: Database, what: str) -> None:
    assert walked_through(big, ACTS[what]) == []


def test_a_walk_through_a_table_is_noticed(big: Database) -> None:
    found = walked_through(big, lambda s: s.execute(text("SELECT * FROM shards WHERE n_runs = 3")))
    assert len(found) == 1
    assert found[0].startswith("shards: ")
