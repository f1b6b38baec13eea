"""Redis, PostgreSQL, web server, scheduler and disks fail, at random too, or are upgraded: nothing accepted is lost."""

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis
from alembic import command
from sqlalchemy import select

from server import migrate
from server.db import Database
from server.models.competition import Competition
from server.models.submission import Submission
from server.storage import content_key
from tests.faults import chaos
from tests.faults.chaos import Chaos, mount_full, unmount
from tests.faults.cluster import Cluster, Score, code, restart_redis, wait_until
from tests.faults.forked import Process
from tests.support.cluster_records import counted, describe_failure, outcomes, scored_like
from tests.support.next_version import with_next_version

pytestmark = pytest.mark.slow


def test_redis_emptied_without_a_scheduler_loses_no_work(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    """The worker's own search finds the lease of a process that is gone, and what waits, with no message left."""
    beat = cluster.start_beat()
    submission = cluster.submit("emptied", code(pause=0.6, note="emptied"))
    wait_until(lambda: cluster.runs_done(submission) >= 1)
    working = worker.children()
    for pid in working:  # a busy machine takes longer for what follows than the other runs take
        os.kill(pid, signal.SIGSTOP)
    waiting = cluster.submit("emptied-before", code(note="emptied before it ran"))
    beat.kill()
    empty(cluster)
    for pid in working:
        os.kill(pid, signal.SIGKILL)
    cluster.let_leases_expire()
    scored_like(cluster, "emptied", submission, undisturbed)
    scored_like(cluster, "emptied-before", waiting, undisturbed)
    assert "lost" in outcomes(cluster, submission)


def empty(cluster: Cluster) -> None:
    """Let Redis forget everything."""
    with redis.Redis.from_url(cluster.redis.client_url) as client:
        client.flushall()


@contextmanager
def full_redis(cluster: Cluster) -> Iterator[None]:
    """Let Redis refuse every write that needs memory."""
    with redis.Redis.from_url(cluster.redis.client_url) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1")
        try:
            yield
        finally:
            client.config_set("maxmemory", "0")


def queue_state(cluster: Cluster) -> str:
    answer = httpx.get(f"{cluster.url}/readyz", trust_env=False)
    assert answer.is_success
    return str(answer.json()["queue"])


def test_full_redis_kills_no_process_and_is_told(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    before = cluster.submit("full-redis", code(pause=0.3, note="before"))
    wait_until(lambda: cluster.runs_done(before) >= 1)
    with full_redis(cluster):
        wait_until(lambda: queue_state(cluster) != "ok")
        during = cluster.submit("full-during", code(note="during"))
        other = cluster.start_worker("started-meanwhile", LETHE_WORKER_COMPETITIONS="none-of-these")
        wait_until(lambda: other.log.exists() and "maxmemory" in other.log.read_text())
        time.sleep(3)
        assert worker.is_alive
        assert other.is_alive
    scored_like(cluster, "full-redis", before, undisturbed)
    scored_like(cluster, "full-during", during, undisturbed)
    wait_until(lambda: queue_state(cluster) == "ok")
    assert worker.is_alive
    assert other.is_alive


def test_redis_away_while_work_comes_in_and_runs(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    """Away for as long as it takes every process to notice."""
    before = cluster.submit("away", code(pause=0.3, note="before"))
    wait_until(lambda: cluster.runs_done(before) >= 1)
    read = len(worker.log.read_text())
    cluster.redis.stop()
    during = cluster.submit("away-during", code(note="during"))
    wait_until(lambda: "Cannot connect to redis" in worker.log.read_text()[read:])
    restart_redis(cluster)
    scored_like(cluster, "away", before, undisturbed)
    scored_like(cluster, "away-during", during, undisturbed)
    assert worker.is_alive


def test_postgresql_restarted_under_running_work(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    submission = cluster.submit("restarted", code(pause=0.3, note="restarted"))
    wait_until(lambda: cluster.runs_done(submission) >= 1)
    cluster.postgres.stop()
    time.sleep(1.0)
    cluster.postgres.start()
    cluster.database.dispose()
    wait_until(cluster.answers)
    scored_like(cluster, "restarted", submission, undisturbed)
    assert worker.is_alive


def test_acknowledged_upload_survives_what_took_it(cluster: Cluster, undisturbed: Score) -> None:
    """PostgreSQL, Redis and the web server end before a worker has seen it. Half an upload is nothing."""
    submission = cluster.submit("acknowledged", code(note="acknowledged"))
    cluster.postgres.crash()
    cluster.postgres.start()
    cluster.database.dispose()
    wait_until(cluster.answers)
    empty(cluster)
    with half_an_upload(cluster, "cut-off"):
        living_web(cluster).kill()
    cluster.start_worker()
    cluster.start_web()
    scored_like(cluster, "acknowledged", submission, undisturbed)
    assert counted(cluster, "cut-off") == 0
    assert cluster.person("cut-off").submissions("tiny") == []


@contextmanager
def half_an_upload(cluster: Cluster, person: str) -> Iterator[None]:
    """Let the web server wait for the rest of an upload."""
    token = cluster.person(person)._http.headers["Authorization"]
    host, port = cluster.url.removeprefix("http://").split(":")
    head = (
        f"POST /api/v1/competitions/tiny/submissions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 500000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n'
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"#" * 100_000)
        time.sleep(0.3)
        yield


def living_web(cluster: Cluster) -> Process:
    return next(one for one in cluster.started if one.name == "web" and one.is_alive)


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Lay a file system without space over `folder`."""
    if not mount_full(folder):
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        unmount(folder)


@pytest.mark.parametrize("what", ["storage", "scratch"])
def test_full_disk_is_the_hosts_fault_and_passes(cluster, worker, undisturbed, what):
    folder = cluster.folder / "storage" / "evaluations" if what == "storage" else cluster.settings.scratch / "stage"
    person = f"full-{what}"
    with full_disk(folder):
        submission = cluster.submit(person, code(note=person))
        wait_until(lambda: "given-back" in outcomes(cluster, submission))
        assert worker.is_alive
    scored_like(cluster, person, submission, undisturbed)


def test_full_disk_ends_in_a_named_failure_without_quota(cluster: Cluster) -> None:
    with full_disk(cluster.settings.scratch / "stage"):
        cluster.start_worker("full", LETHE_MAX_ATTEMPTS="2")
        submission = cluster.submit("full-for-ever", code(note="for ever"))
        cluster.wait_for_end("full-for-ever", submission)
    assert describe_failure(cluster, submission)[:2] == ("failed", "host")
    assert counted(cluster, "full-for-ever") == 0


def test_content_lost_from_storage_is_the_hosts_fault(cluster: Cluster) -> None:
    submission = cluster.submit("gone", code(note="gone"))
    with cluster.database.read() as session:
        sha256 = session.get_one(Submission, submission["id"]).content_sha256
    (cluster.folder / "storage" / content_key(sha256)).unlink()
    cluster.start_worker("bereft", LETHE_MAX_ATTEMPTS="2")
    cluster.wait_for_end("gone", submission)
    assert describe_failure(cluster, submission)[:2] == ("failed", "host")
    assert counted(cluster, "gone") == 0


def _change_by_the_next_version(cluster: Cluster) -> None:
    """Store the competition as the next version's web server does: with keys that this version does not know."""
    with Database(cluster.settings.resolved_database_url) as database, database.write() as session:
        row = session.scalars(select(Competition)).one()
        row.config = {**row.config, "of_the_next": 1, "limits": {**row.config["limits"], "of_the_next": 2}}


def test_next_versions_migration_under_running_work(cluster, worker, undisturbed, tmp_path, monkeypatch):
    with_next_version(monkeypatch, tmp_path / "next")
    before = cluster.submit("upgraded", code(pause=0.3, note="before the migration"))
    wait_until(lambda: cluster.runs_done(before) >= 1)
    is_over = threading.Event()
    failed: list[Exception] = []

    def read() -> None:
        while not is_over.wait(0.1):
            try:
                cluster.person("reader").leaderboard("tiny")
            except Exception as error:
                failed.append(error)

    reader = threading.Thread(target=read)
    cluster.person("reader")
    reader.start()
    try:
        migrate.upgrade(cluster.settings.resolved_database_url)
        _change_by_the_next_version(cluster)
        during = cluster.submit("upgraded-after", code(note="after the migration"))
        scored_like(cluster, "upgraded", before, undisturbed)
        scored_like(cluster, "upgraded-after", during, undisturbed)
    finally:
        is_over.set()
        reader.join()
        command.downgrade(migrate.alembic_config(cluster.settings.resolved_database_url), "-1")
    assert failed == []
    assert worker.is_alive


@pytest.fixture
def disturbed(cluster: Cluster) -> Iterator[Chaos]:
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    made = Chaos(cluster, random.Random(seed))
    yield made
    made.fix_what_is_due(all_of_it=True)


def test_random_faults_break_no_promise(disturbed: Chaos, undisturbed: Score) -> None:
    chaos.run(disturbed, faults=8, submissions=6, workers=2, pause_s=0.5, within_s=240)
    assert chaos.broken_promises(disturbed, undisturbed) == []
    assert len(disturbed.accepted) == 6
    assert sum(disturbed.counts.values()) == 8
