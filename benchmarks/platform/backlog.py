"""A small team behind a backlog: messages, memory, time to its score. `python -m benchmarks.platform.backlog`

A cluster as in production: web server, scheduler, one worker, PostgreSQL and Redis. A team's score with nothing else
in the queue comes first; then a few teams have thousands of submissions waiting (rows made by SQL, each with its
wake-up message, of code that runs), and a new team sends one by HTTP. Served in turns it waits for one shard of each
flooding team before each of its own; in the order of arrival it would wait for the whole backlog.
"""

import argparse
import hashlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from celery import Celery
from sqlalchemy import text

from benchmarks.platform.soak import Program, known, own_mib, start_programs
from server.db import Database
from server.evaluations.scorer_version import SCORER_VERSION
from server.queue import EVALUATE_SHARD, configure, most_waiting, waiting
from server.queue_order import Turn
from server.storage import content_key
from tests.faults.cluster import Cluster, code, running_cluster

SLUG = "tiny"
ENTRY_POINT = {"file": "submission.py", "function": "unlearning", "style": "dict", "keywords": []}
SETTINGS = {"LETHE_UPLOADS_PER_10_MIN": "0", "LETHE_WORKER_CONCURRENCY": "1", "LETHE_LEASE_S": "30"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=10_000)
    parser.add_argument("--teams", type=int, default=10, help="that the backlog belongs to")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lethe-backlog-"))
    with running_cluster(folder, **SETTINGS) as cluster:
        programs = start_programs(cluster)
        try:
            found = measure(cluster, programs, submissions=options.submissions, teams=options.teams)
        finally:
            for program in programs:
                program.stop()
    for name, value in found.items():
        print(f"{name:<52}{value:>12.1f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def measure(cluster: Cluster, programs: list[Program], *, submissions: int, teams: int) -> dict[str, float]:
    """Return every figure by its name."""
    time_to_score(cluster, "warm-up")
    found = {"alone: upload to score, s": time_to_score(cluster, "alone")}
    with watched(cluster, programs) as quiet:
        time.sleep(5)
    content = code(note="backlog").encode()
    sha256 = cluster.storage.write(content_key(hashlib.sha256(content).hexdigest()), content)
    seed(cluster.database, sha256, submissions=submissions, teams=teams)
    with watched(cluster, programs) as busy:
        wake_as_uploads_do(cluster, submissions)
        found["behind the backlog: upload to score, s"] = time_to_score(cluster, "small")
    with cluster.database.read() as session:
        counted = session.execute(text("SELECT state, count(*) FROM shards GROUP BY state")).all()
    found |= {f"shards {state}": float(count) for state, count in counted}
    for name, before in quiet.items():
        found[f"{name}, at most: empty queue"] = before
        found[f"{name}, at most: backlog"] = busy[name]
    return found


def time_to_score(cluster: Cluster, person: str) -> float:
    """Send one submission. Return the seconds until it is scored."""
    cluster.person(person)
    started = time.monotonic()
    sent = cluster.submit(person, code(note=person))
    ended = cluster.wait_for_end(person, sent, within_s=1800, every_s=0.5)
    if ended["stage"] != "scored":
        raise RuntimeError(f"{person}'s submission ended as {ended['stage']}: {ended.get('error')}")
    return time.monotonic() - started


def wake_as_uploads_do(cluster: Cluster, times: int) -> None:
    """Send a message for each submission of the backlog, as its upload would have done, where one may be sent."""
    app = configure(Celery("backlog"), redis_url=cluster.redis.broker_url)
    queue = "lethe.cpu"
    with app.producer_or_acquire() as producer:
        for _ in range(times):
            if waiting(producer.channel, queue) < most_waiting(EVALUATE_SHARD):
                app.send_task(EVALUATE_SHARD, queue=queue, producer=producer)


@contextmanager
def watched(cluster: Cluster, programs: list[Program]) -> Iterator[dict[str, float]]:
    """Yield the largest value of each figure while the block runs."""
    most: dict[str, float] = {}
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.5):
            for name, value in figures(cluster, programs).items():
                most[name] = max(value, most.get(name, 0.0))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        is_over.set()
        thread.join()


def figures(cluster: Cluster, programs: list[Program]) -> dict[str, float]:
    with redis.Redis.from_url(cluster.redis.client_url) as client:
        queues = [key for key in client.keys("*") if client.type(key) == b"list"]
        found = {
            "messages": float(sum(client.llen(key) for key in queues)),
            "Redis, MiB": client.info("memory")["used_memory"] / 2**20,
        }
    for program in programs:
        found[f"{program.name}, MiB"] = sum(known(own_mib, pid) for pid in program.pids())
    return found


def seed(database: Database, sha256: str, *, submissions: int, teams: int) -> None:
    """Give each of a few teams its share of waiting submissions, as their uploads would have left them."""
    steps = (
        """INSERT INTO accounts (id, name, name_key, password_hash, role, created_at)
           SELECT 'flood' || i, 'flood-' || i, 'flood-' || i, 'x', 'participant', now()
           FROM generate_series(1, :teams) i""",
        """INSERT INTO teams (id, competition_id, name, name_key, leader_id, is_baseline, created_at)
           SELECT 'flood' || i, c.id, 'flood-' || i, 'flood-' || i, 'flood' || i, false, now()
           FROM generate_series(1, :teams) i, competitions c WHERE c.slug = :slug""",
        """INSERT INTO submissions (id, competition_id, team_id, account_id, filename, kind, content_sha256, size_bytes,
                                    entry_point, message, request_id, received_at, stage, refunded, selected)
           SELECT 's' || i, c.id, 'flood' || (1 + i % :teams), 'flood' || (1 + i % :teams), 'submission.py', 'py',
                  :sha256, 1, CAST(:entry_point AS json), '', '', now(), 'queued', false, false
           FROM generate_series(1, :submissions) i, competitions c WHERE c.slug = :slug""",
        """INSERT INTO evaluations (id, submission_id, split_id, scorer_version, rejudging_id, is_current, state,
                                    n_runs, priority, created_at)
           SELECT 'e' || i, 's' || i, p.id, :version, '', true, 'queued', CAST(c.config->>'n_models' AS int), 0, now()
           FROM generate_series(1, :submissions) i, competitions c JOIN splits p ON p.competition_id = c.id
           WHERE c.slug = :slug AND p.visibility = 'public'""",
        """INSERT INTO shards (evaluation_id, team_id, split_id, competition_id, kind, first_run, n_runs, state, turn,
                               attempt, failed_attempts, runs_done, wall_time_s, queued_at)
           SELECT 'e' || i, 'flood' || (1 + i % :teams), p.id, c.id, 'smoke', 0, 1, 'queued',
                  CASE WHEN i <= :teams THEN :smoke ELSE :new END, 0, 0, 0, 0, now()
           FROM generate_series(1, :submissions) i, competitions c JOIN splits p ON p.competition_id = c.id
           WHERE c.slug = :slug AND p.visibility = 'public'""",
    )
    values = {
        "teams": teams,
        "submissions": submissions,
        "slug": SLUG,
        "sha256": sha256,
        "entry_point": json.dumps(ENTRY_POINT),
        "version": SCORER_VERSION,
        "smoke": Turn.SMOKE.first,
        "new": Turn.NEW.first,
    }
    with database.engine.begin() as connection:
        for step in steps:
            connection.execute(text(step), {name: value for name, value in values.items() if f":{name}" in step})


if __name__ == "__main__":
    main()
