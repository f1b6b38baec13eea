"""Redis, PostgreSQL, the web server, the scheduler and the disks fail under running work: nothing accepted is lost."""

import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis
from celery import Celery

from server.models.evaluation import PublicScore, Shard
from server.models.submission import Submission
from server.queue import EVALUATE_SHARD, SCORE_EVALUATION, SWEEP, configure
from server.storage import content_key
from tests.faults.chaos import mount_full, unmount
from tests.faults.cluster import LONG, Cluster, Score, code, restart_redis, wait_until
from tests.faults.forked import Process
from tests.support.cluster_records import counted, describe_failure, outcomes, scored_like, stage_is


def test_redis_emptied_loses_no_work(cluster: Cluster, undisturbed: Score) -> None:
    submission = cluster.submit("emptied", code(note="emptied"))
    with redis.Redis.from_url(cluster.redis.client_url) as client:
        client.flushall()
    cluster.start_worker()
    scored_like(cluster, "emptied", submission, undisturbed)


def test_redis_emptied_under_a_worker_loses_no_lease(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    """With no scheduler alive, the worker's own search finds the lease, although Redis has forgotten all queues."""
    submission = cluster.submit("emptied-under", code(pause=0.6, note="emptied-under"))
    wait_until(lambda: cluster.runs_done(submission) >= 1)
    with redis.Redis.from_url(cluster.redis.client_url) as client:
        client.flushall()
    for pid in worker.children():
        os.kill(pid, signal.SIGKILL)
    scored_like(cluster, "emptied-under", submission, undisturbed)
    assert "lost" in outcomes(cluster, submission)


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


def test_full_redis_kills_no_process_and_is_told(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    before = cluster.submit("full-redis", code(pause=0.3, note="before"))
    wait_until(lambda: cluster.runs_done(before) >= 1)
    with full_redis(cluster):
        wait_until(lambda: httpx.get(f"{cluster.url}/readyz", trust_env=False).status_code == 503)
        during = cluster.submit("full-during", code(note="during"))
        other = cluster.start_worker("started-meanwhile")
        wait_until(lambda: other.log.exists() and "maxmemory" in other.log.read_text())
        time.sleep(3)
        assert worker.is_alive
        assert other.is_alive
    scored_like(cluster, "full-redis", before, undisturbed)
    scored_like(cluster, "full-during", during, undisturbed)
    wait_until(lambda: httpx.get(f"{cluster.url}/readyz", trust_env=False).is_success)
    assert worker.is_alive
    assert other.is_alive


def test_redis_away_while_work_comes_in_and_runs(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    """Away for as long as it takes every process to notice; benchmarks/platform/chaos.py has it away for 30 s."""
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


def test_killed_scheduler_stops_nothing(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    beat = cluster.start_beat()
    submission = cluster.submit("beatless", code(pause=0.6, note="beatless"))
    wait_until(lambda: cluster.runs_done(submission) >= 1)
    beat.kill()
    for pid in worker.children():
        os.kill(pid, signal.SIGKILL)  # their leases are found although nobody schedules a search
    scored_like(cluster, "beatless", submission, undisturbed)
    assert "lost" in outcomes(cluster, submission)


def test_acknowledged_upload_survives_the_crash_of_postgresql(cluster: Cluster) -> None:
    submission = cluster.submit("crashed", code(note="crashed"))
    cluster.postgres.crash()
    cluster.postgres.start()
    cluster.database.dispose()
    wait_until(cluster.answers)
    with cluster.database.read() as session:
        assert session.get(Submission, submission["id"]) is not None
    cluster.person("crashed").cancel(submission["id"])


def test_doubled_and_reordered_messages_change_nothing(cluster: Cluster, undisturbed: Score) -> None:
    submission = cluster.submit("doubled", code(note="doubled"))
    with cluster.database.read() as session:
        evaluation_id = session.query(Shard).order_by(Shard.id.desc()).first().evaluation_id  # type: ignore[union-attr]
    sender = configure(Celery("lethe"), redis_url=cluster.redis.broker_url)
    messages: list[tuple[str, tuple[object, ...]]] = [
        *[(EVALUATE_SHARD, ())] * 12,
        *[(SCORE_EVALUATION, (evaluation_id,))] * 6,
        *[(SWEEP, ())] * 6,
    ]
    random.Random(7).shuffle(messages)
    for task, arguments in messages:
        sender.send_task(task, args=arguments, queue="lethe.cpu")
    cluster.start_worker(concurrency=2, LETHE_LEASE_S=LONG)  # the same message in two processes at once
    wait_until(stage_is(cluster, submission, "scored"))
    for _ in range(4):
        sender.send_task(SCORE_EVALUATION, args=(evaluation_id,))
    sender.close()
    scored_like(cluster, "doubled", submission, undisturbed)
    with cluster.database.read() as session:
        assert session.query(PublicScore).filter_by(submission_id=submission["id"]).count() == 1
    assert set(outcomes(cluster, submission)) == {"done"}


def test_web_server_killed_during_an_upload_leaves_nothing_behind(cluster: Cluster) -> None:
    token = cluster.person("cut-off")._http.headers["Authorization"]
    host, port = cluster.url.removeprefix("http://").split(":")
    head = (
        f"POST /api/v1/competitions/tiny/submissions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 500000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n'
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"#" * 100_000)
        time.sleep(0.3)
        living_web(cluster).kill()
    cluster.start_web()
    assert counted(cluster, "cut-off") == 0
    assert cluster.person("cut-off").submissions("tiny") == []


def living_web(cluster: Cluster) -> Process:
    return next(one for one in cluster.started if one.name == "web" and one.is_alive)


def test_acknowledged_upload_survives_the_kill_of_the_web_server(cluster: Cluster, undisturbed: Score) -> None:
    submission = cluster.submit("acknowledged", code(note="acknowledged"))
    living_web(cluster).kill()
    cluster.start_worker()
    cluster.start_web()
    scored_like(cluster, "acknowledged", submission, undisturbed)


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
def test_full_disk_is_the_hosts_fault_and_passes(cluster: Cluster, undisturbed: Score, what: str) -> None:
    folder = cluster.folder / "storage" / "evaluations" if what == "storage" else cluster.settings.scratch / "stage"
    person = f"full-{what}"
    with full_disk(folder):
        cluster.start_worker("full", LETHE_MAX_ATTEMPTS="20")
        submission = cluster.submit(person, code(note=person))
        wait_until(lambda: "given-back" in outcomes(cluster, submission))
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
