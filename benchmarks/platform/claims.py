"""Claims and closes on PostgreSQL, and how their cost changes with the length of the queue and its number of teams.

    python -m benchmarks.platform.claims [--processes 8] [--seconds 5] [--teams 125 1000 10000] [--shards 80000]

Each process claims a shard, reports one heartbeat and closes it, as a worker does that has nothing to compute. After
that, polls that find nothing: by a worker of another split, by an untrusted one while all that waits is for trusted
workers, and with an empty queue. The server is a real one with its durability switched off, so that what is measured
is the work and not the disk.
"""

import json
import multiprocessing
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from statistics import median
from typing import Any

from sqlalchemy import text

from benchmarks.shared import options, postgres
from lethe.competition.file import CompetitionFile
from server import queue
from server.db import Database
from server.evaluations import leases
from server.migrate import upgrade
from tests.support.processes import cpu_s

POLLS = 200
SHARDS_PER_EVALUATION, RUNS_PER_SHARD = 8, 64


def competition_file() -> CompetitionFile:
    moment = datetime.now(UTC)
    times = {"opens_at": moment - timedelta(days=1), "closes_at": moment + timedelta(days=1)}
    task = {"dataset": {"name": "digits"}, "network": {"name": "mlp"}, "training": {"epochs": 1, "learning_rate": 0.1}}
    return CompetitionFile.model_validate({"slug": "big", "title": "Big", **times, **task})


def seed(database: Database, file: CompetitionFile, *, teams: int, shards: int) -> None:
    """Fill an empty migrated PostgreSQL database with `shards` queued shards, spread evenly over `teams` teams.

    The first team floods: a tenth of all shards are its own.
    """
    evaluations = shards // SHARDS_PER_EVALUATION
    steps = (
        """INSERT INTO accounts (id, name, name_key, password_hash, role, created_at)
           SELECT lpad(i::text, 16, '0'), 'person-' || i, 'person-' || i, 'x', 'participant', now()
           FROM generate_series(0, :teams) i""",
        """INSERT INTO competitions (id, slug, title, summary, state, opens_at, closes_at, config, source,
                                     created_at, created_by)
           VALUES ('c', :slug, 'Big', '', 'open', now() - interval '1 day', now() + interval '1 day',
                   CAST(:config AS json), '', now(), lpad('0', 16, '0'))""",
        """INSERT INTO splits (id, competition_id, visibility, state, stage, progress, attempt, error,
                               manifest_sha256, versions, retraining_time_s)
           SELECT v, 'c', v, 'ready', '', 1, 1, '', repeat('0', 64), '{}', 1
           FROM unnest(ARRAY['public', 'private']) v""",
        """INSERT INTO teams (id, competition_id, name, name_key, leader_id, is_baseline, created_at)
           SELECT md5('team' || i)::char(16), 'c', 'team-' || i, 'team-' || i, lpad(i::text, 16, '0'), false, now()
           FROM generate_series(1, :teams) i""",
        """INSERT INTO submissions (id, competition_id, team_id, account_id, filename, kind, content_sha256,
                size_bytes, entry_point, message, request_id, received_at, stage, refunded, selected)
           SELECT md5('submission' || i)::char(16), 'c', md5('team' || t)::char(16), lpad(t::text, 16, '0'), 'a.py',
                  'py', repeat('0', 64), 1, '{"file": "a.py"}', '', '', now(), 'queued', false, false
           FROM (SELECT i, CASE WHEN i % 10 = 0 THEN 1 ELSE 1 + i % :teams END AS t
                 FROM generate_series(1, :evaluations) i) numbered""",
        """INSERT INTO evaluations (id, submission_id, split_id, scorer_version, rejudging_id, is_current, state,
                                    n_runs, priority, created_at)
           SELECT md5('evaluation' || i)::char(16), md5('submission' || i)::char(16), 'public', '1', '', true,
                  'queued', 512, 0, now()
           FROM generate_series(1, :evaluations) i""",
        """INSERT INTO shards (evaluation_id, team_id, split_id, competition_id, kind, first_run, n_runs, state,
                               turn, attempt, failed_attempts, runs_done, wall_time_s, queued_at)
           SELECT e.id, s.team_id, 'public', 'c', 'runs', k * 64, 64, 'queued', 400000000 + r.round,
                  0, 0, 0, 0, now()
           FROM generate_series(1, :evaluations) i
           JOIN evaluations e ON e.id = md5('evaluation' || i)::char(16)
           JOIN submissions s ON s.id = e.submission_id
           JOIN (SELECT id, row_number() OVER (PARTITION BY team_id) - 1 AS round FROM submissions) r ON r.id = s.id
           CROSS JOIN generate_series(0, 7) k""",
    )
    values = {"teams": teams, "evaluations": evaluations, "slug": file.slug, "config": file.model_dump_json()}
    with database.engine.begin() as connection:
        for step in steps:
            connection.execute(text(step), {name: value for name, value in values.items() if f":{name}" in step})
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def main() -> None:
    given = options(__doc__, processes=8, seconds=5.0, teams=[125, 1_000, 10_000], shards=[80_000])
    with postgres() as server:
        for teams, shards in product(given.teams, given.shards):
            url = server.url(server.create_database())
            upgrade(url)
            database = Database(url)
            seed(database, competition_file(), teams=min(teams, shards // 8), shards=shards)
            before = cpu_s(server.pid)
            found = measure(url, given.processes, given.seconds)
            found["server_cpu_ms_per_shard"] = round(1000 * (cpu_s(server.pid) - before) / found["shards"], 2)
            found |= {f"poll_{name}_cpu_ms": cost for name, cost in polls(database, server.pid)}
            database.dispose()
            print(json.dumps({"teams": teams, "queued": shards} | found), flush=True)


def polls(database: Database, pid: int) -> Iterator[tuple[str, float]]:
    """Yield each kind of poll that finds nothing, and PostgreSQL's processor time for one of them, ms."""
    yield "other_split", _poll(database, pid, splits=["private"])
    _run(database, "UPDATE shards SET trusted_only = true WHERE state = 'queued'")
    yield "untrusted", _poll(database, pid, token_id="untrusted")
    _run(database, "UPDATE shards SET state = 'cancelled' WHERE state = 'queued'")
    yield "empty", _poll(database, pid)


def _poll(database: Database, pid: int, **asked: Any) -> float:
    before = cpu_s(pid)
    for _ in range(POLLS):
        shard = database.retrying(lambda session: leases.claim(session, worker="w", lease_s=60, **asked))
        assert shard is None, "a poll that should find nothing found a shard"
    return round(1000 * (cpu_s(pid) - before) / POLLS, 2)


def _run(database: Database, statement: str) -> None:
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))
        connection.execute(text("VACUUM ANALYZE shards"))


def measure(url: str, processes: int, seconds: float) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = pool.starmap(work, [(url, index, seconds) for index in range(processes)])
    claimed = [time_s for times, _, _ in found for time_s in times]
    closed = [time_s for _, times, _ in found for time_s in times]
    return {
        "shards": len(claimed),
        "claims_per_s": round(len(claimed) / seconds, 1),
        "claim_ms_median": round(1000 * median(claimed), 2),
        "claim_ms_p99": round(1000 * sorted(claimed)[int(len(claimed) * 0.99)], 2),
        "close_ms_median": round(1000 * median(closed), 2),
        "worker_cpu_ms_per_shard": round(1000 * sum(cpu_s for _, _, cpu_s in found) / len(claimed), 2),
    }


def work(url: str, index: int, seconds: float) -> tuple[list[float], list[float], float]:
    """Claim and close until time is up. Return how long each claim and each close took, and the processor time."""
    queue.send = lambda *_, **__: True  # no broker is here, and none is measured
    database = Database(url)
    claimed: list[float] = []
    closed: list[float] = []
    _step(database, index, [], [])  # connects, and warms the caches of both sides
    end, cpu = time.perf_counter() + seconds, time.process_time()
    while time.perf_counter() < end and _step(database, index, claimed, closed):
        pass
    cpu_s = time.process_time() - cpu
    database.dispose()
    return claimed, closed, cpu_s


def _step(database: Database, index: int, claimed: list[float], closed: list[float]) -> bool:
    started = time.perf_counter()
    shard = database.retrying(lambda session: leases.claim(session, worker=f"w{index}", lease_s=60))
    claimed.append(time.perf_counter() - started)
    if shard is None:
        return False
    database.retrying(lambda s: leases.heartbeat(s, shard, lease_s=60, runs_done=32, wall_time_s=1.0))
    started = time.perf_counter()
    database.retrying(
        lambda s: leases.close(s, shard, result_key="k", result_sha256="0" * 64, wall_time_s=1.0, verified_share=0.05)
    )
    closed.append(time.perf_counter() - started)
    return True


if __name__ == "__main__":
    main()
