"""Random faults, drawn from a seed, over a cluster at work, and the promises that must hold afterwards.

Faults that last are fixed by and by, while others happen. What Lethe does not start again itself (a dead web server,
a dead worker) is started again at once, as systemd would.
"""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import redis
from celery import Celery
from sqlalchemy import text

from lethe.client.api import ApiError, JsonObject, Unreachable
from server.queue import EVALUATE_SHARD, SCORE_EVALUATION, SWEEP, configure
from tests.faults.cluster import LEASE_S, Cluster, Score, code, restart_redis, wait_until
from tests.faults.forked import Process
from tests.support.processes import descendants

ENDED = ("scored", "failed", "cancelled")
N_PEOPLE = 6


@dataclass
class Chaos:
    """A cluster that is being disturbed."""

    cluster: Cluster
    dice: random.Random
    tell: Callable[[str], None] = print
    workers: list[Process] = field(default_factory=list)
    leaving: list[Process] = field(default_factory=list)
    web: Process | None = None
    beat: Process | None = None
    fixing: list[tuple[float, str, Callable[[], None]]] = field(default_factory=list)  # (when, what, how)
    accepted: dict[str, str] = field(default_factory=dict)  # submission id -> person
    unsure: int = 0  # uploads that got no answer: they may have been taken
    counts: dict[str, int] = field(default_factory=dict)

    # --- what goes on meanwhile ---

    def begin(self, *, workers: int) -> None:
        for person in self.people:
            self.cluster.person(person)
        self.web = next(one for one in self.cluster.started if one.name == "web" and one.is_alive)
        self.workers = [self._new_worker() for _ in range(workers)]
        self.beat = self.cluster.start_beat()

    @property
    def people(self) -> list[str]:
        return [f"chaos-{number}" for number in range(N_PEOPLE)]

    def submit_all(self, submissions: int, *, pause_s: float, dice: random.Random) -> None:
        """Upload whatever happens meanwhile, each until it is acknowledged."""
        for number in range(submissions):
            self._submit(self.people[number % N_PEOPLE], f"chaos {number}", dice)
            time.sleep(dice.uniform(0.0, 2 * pause_s))

    def _submit(self, person: str, note: str, dice: random.Random) -> None:
        for attempt in range(300):
            pause = dice.choice((0.0, 0.1, 0.3))
            try:
                submission = self.cluster.submit(person, code(pause=pause, note=f"{note} {attempt} {dice.random()}"))
            except Unreachable:
                self.unsure += 1
            except ApiError as error:
                if error.http_status < 500:
                    raise
                self.unsure += 1
            else:
                self.accepted[submission["id"]] = person
                return
            time.sleep(0.2)
        raise TimeoutError("no upload was acknowledged in 300 attempts")

    def disturb(self, name: str) -> None:
        self.tell(f"{name}")
        self.counts[name] = self.counts.get(name, 0) + 1
        FAULTS[name](self)

    def fix_what_is_due(self, *, all_of_it: bool = False) -> None:
        at = time.monotonic()
        due = [one for one in self.fixing if all_of_it or one[0] <= at]
        self.fixing = [one for one in self.fixing if one not in due]
        for _, what, fix in due:
            self.tell(f"  fixed: {what}")
            fix()

    def look_after(self, seconds: float) -> None:
        """Fix what is due until the time is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.fix_what_is_due()
            time.sleep(0.05)

    def under_repair(self, what: str) -> bool:
        return any(name == what for _, name, _ in self.fixing)

    def fix_later(self, what: str, fix: Callable[[], None], *, after_s: float) -> None:
        self.fixing.append((time.monotonic() + after_s, what, fix))

    def end(self, *, within_s: float) -> None:
        """Fix everything and wait until every submission has ended."""
        self.fix_what_is_due(all_of_it=True)
        wait_until(self.cluster.answers)
        wait_until(lambda: not self._open(), within_s=within_s, about=lambda: f"still open: {self._open()}")
        for process in [*self.workers, *self.leaving, *([self.beat] if self.beat else [])]:
            process.stop()

    def _open(self) -> list[tuple[str, str]]:
        with self.cluster.database.read() as session:
            rows = session.execute(
                text(
                    "SELECT s.id, s.stage FROM submissions s JOIN accounts a ON a.id = s.account_id "
                    "WHERE a.name LIKE 'chaos-%' AND s.stage NOT IN ('scored', 'failed', 'cancelled')"
                )
            )
            return [(row[0], row[1]) for row in rows]

    # --- the pieces that faults hit ---

    def _new_worker(self, *, skew_s: float = 0.0) -> Process:
        return self.cluster.start_worker(f"chaos-{len(self.cluster.started)}", skew_s=skew_s, LETHE_MAX_ATTEMPTS="12")

    def _replace(self, worker: Process, *, skew_s: float = 0.0) -> None:
        self.workers[self.workers.index(worker)] = self._new_worker(skew_s=skew_s)

    def _any_worker(self) -> Process:
        return self.dice.choice(self.workers)

    def _any_process(self) -> int | None:
        """Return a process that computes, of any worker."""
        found = sorted(pid for worker in self.workers if worker.is_alive for pid in worker.children())
        return self.dice.choice(found) if found else None

    def worker_killed(self) -> None:
        worker = self._any_worker()
        worker.kill()
        self._replace(worker)

    def worker_stopped(self) -> None:
        worker = self._any_worker()
        if worker.is_alive:
            worker.signal(signal.SIGTERM)
        self.leaving.append(worker)
        self._replace(worker)

    def process_killed(self) -> None:
        pid = self._any_process()
        if pid:
            _send(pid, signal.SIGKILL)

    def process_frozen(self) -> None:
        pid = self._any_process()
        if pid:
            _send(pid, signal.SIGSTOP)
            self.fix_later(
                f"{pid} wakes", lambda: _send(pid, signal.SIGCONT), after_s=self.dice.uniform(0.2, 2 * LEASE_S)
            )

    def worker_frozen(self) -> None:
        """The main process and all below it, sandboxes too, as when a virtual machine is moved."""
        worker = self._any_worker()
        if not worker.is_alive:
            return
        frozen = [worker.pid, *(pid for pid, _ in descendants(worker.pid))]
        for pid in frozen:
            _send(pid, signal.SIGSTOP)

        def wake() -> None:
            for pid in frozen:
                _send(pid, signal.SIGCONT)

        self.fix_later(f"worker {worker.pid} wakes", wake, after_s=self.dice.uniform(0.2, 2 * LEASE_S))

    def sandbox_killed(self) -> None:
        """A sandbox as a whole, as the kernel does when it ends a complete memory group."""
        boxes = [pid for worker in self.workers if worker.is_alive for pid in worker.sandboxes()]
        if boxes:
            _send(self.dice.choice(boxes), signal.SIGKILL)

    def clock_jumped(self) -> None:
        worker = self._any_worker()
        worker.kill()
        seconds = 100.0
        self._replace(worker, skew_s=self.dice.choice((seconds, -seconds)))

    def beat_killed(self) -> None:
        if self.beat:
            self.beat.kill()
        self.beat = self.cluster.start_beat()

    def web_killed(self) -> None:
        if self.web:
            self.web.kill()
        self.web = self.cluster.start_web()

    def upload_cut_off(self) -> None:
        """Half an upload; then either the line breaks or the server dies."""
        token = self.cluster.person(self.people[0])._http.headers["Authorization"]
        host, port = self.cluster.url.removeprefix("http://").split(":")
        head = (
            f"POST /api/v1/competitions/tiny/submissions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n\r\n"
            '--b\r\nContent-Disposition: form-data; name="file"; filename="half.py"\r\n\r\n'
        )
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(head.encode() + b"#" * self.dice.randrange(50_000))
            if self.dice.random() < 0.5:
                self.web_killed()

    def messages_doubled(self) -> None:
        with self.cluster.database.read() as session:
            ids = [row[0] for row in session.execute(text("SELECT id FROM evaluations ORDER BY id"))]
        sender = configure(Celery("lethe"), redis_url=self.cluster.redis.broker_url)
        messages: list[tuple[str, tuple[str, ...]]] = [
            *[(EVALUATE_SHARD, ())] * 6,
            *[(SCORE_EVALUATION, (one,)) for one in self.dice.sample(ids, min(len(ids), 6))],
            *[(SWEEP, ())] * 3,
        ]
        self.dice.shuffle(messages)
        with suppress(Exception):  # the broker may be away
            for task, arguments in messages:
                sender.send_task(task, args=arguments, queue="lethe.cpu", retry=False)
        sender.close()

    def redis_emptied(self) -> None:
        with suppress(redis.ConnectionError), redis.Redis.from_url(self.cluster.redis.client_url) as client:
            client.flushall()

    def redis_away(self) -> None:
        if self.under_repair("redis"):
            return
        self.cluster.redis.stop()
        seconds = self.dice.uniform(0.2, 4.0)
        self.fix_later("redis", lambda: restart_redis(self.cluster), after_s=seconds)

    def database_restarted(self) -> None:
        self.cluster.postgres.stop()
        time.sleep(self.dice.uniform(0.0, 2.0))
        self.cluster.postgres.start()
        self.cluster.database.dispose()

    def database_crashed(self) -> None:
        """Every session is broken off in the middle, and what was committed is read back from its log."""
        self.cluster.postgres.crash()
        self.cluster.postgres.start()
        self.cluster.database.dispose()

    def connections_cut(self) -> None:
        with psycopg.connect(self.cluster.postgres.url(), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        self.cluster.database.dispose()

    def tables_locked(self) -> None:
        tables = ["shards", "evaluations", "submissions", "public_scores", "shard_attempts"]
        with self.cluster.database.engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
            with suppress(Exception):
                connection.execute(text(f"LOCK TABLE {self.dice.choice(tables)} IN EXCLUSIVE MODE"))
                time.sleep(self.dice.uniform(0.2, 1.5))
            connection.rollback()

    def storage_full(self) -> None:
        self._full(self.cluster.folder / "storage" / "evaluations", "storage")

    def scratch_full(self) -> None:
        self._full(self.cluster.settings.scratch / "stage", "scratch")

    def _full(self, folder: Path, name: str) -> None:
        if not self.under_repair(name) and mount_full(folder):
            self.fix_later(name, lambda: unmount(folder), after_s=self.dice.uniform(0.3, 3.0))


FAULTS: dict[str, Callable[[Chaos], None]] = {
    name: getattr(Chaos, name)
    for name in (
        "worker_killed",
        "worker_stopped",
        "worker_frozen",
        "process_killed",
        "process_frozen",
        "sandbox_killed",
        "clock_jumped",
        "beat_killed",
        "web_killed",
        "upload_cut_off",
        "messages_doubled",
        "redis_emptied",
        "redis_away",
        "database_restarted",
        "database_crashed",
        "connections_cut",
        "tables_locked",
        "storage_full",
        "scratch_full",
    )
}


def run(chaos: Chaos, *, faults: int, submissions: int, workers: int, pause_s: float, within_s: float) -> None:
    """Upload and disturb at the same time. Every kind of fault happens before any happens again."""
    chaos.begin(workers=workers)
    deck: list[str] = []
    with ThreadPoolExecutor(1, "uploads") as pool:
        pace = pause_s * faults / submissions
        uploads = pool.submit(
            chaos.submit_all, submissions, pause_s=pace, dice=random.Random(chaos.dice.getrandbits(32))
        )
        for _ in range(faults):
            if not deck:
                deck = list(FAULTS)
                chaos.dice.shuffle(deck)
            chaos.disturb(deck.pop())
            chaos.look_after(chaos.dice.uniform(0.0, 2 * pause_s))
        while not uploads.done():
            chaos.look_after(0.2)
        uploads.result()
    chaos.end(within_s=within_s)


def broken_promises(chaos: Chaos, undisturbed: Score) -> list[str]:
    """Return each broken guarantee, as text; empty if all hold."""
    rows = submissions(chaos.cluster)
    found = [f"accepted, and gone: {lost}" for lost in sorted(chaos.accepted.keys() - {row["id"] for row in rows})]
    if len(rows) > len(chaos.accepted) + chaos.unsure:
        found.append(f"{len(rows)} submissions from {len(chaos.accepted)} accepted and {chaos.unsure} without answer")
    for row in rows:
        found += [f"submission {row['id']}: {problem}" for problem in _wrong_with(chaos, row, undisturbed)]
    for table, condition in (
        ("shards", "state = 'leased'"),
        ("shard_attempts", "outcome = 'running'"),
        ("evaluations", "state IN ('queued', 'running', 'scoring')"),
    ):
        left = _count(chaos.cluster, f"SELECT count(*) FROM {table} WHERE {condition}")
        found += [f"{left} rows of {table} with {condition}"] if left else []
    for person in chaos.people:
        counted = sum(row["person"] == person and not row["refunded"] for row in rows)
        told = chaos.cluster.person(person).quota("tiny")["used_today"]
        found += [f"{person} is told {told} of {counted} submissions"] if told != counted else []
    return found


def _wrong_with(chaos: Chaos, row: JsonObject, undisturbed: Score) -> list[str]:
    found = []
    scores = _count(chaos.cluster, "SELECT count(*) FROM public_scores WHERE submission_id = :id", id=row["id"])
    not_once = _count(
        chaos.cluster,
        "SELECT count(*) FROM shards s JOIN evaluations e ON e.id = s.evaluation_id WHERE e.submission_id = :id "
        "AND 1 <> (SELECT count(*) FROM shard_attempts a WHERE a.shard_id = s.id AND a.outcome = 'done')",
        id=row["id"],
    )
    if row["stage"] == "scored":
        if scores != 1:
            found.append(f"{scores} scores")
        elif chaos.cluster.exact_score(row) != undisturbed:
            found.append(f"score {chaos.cluster.exact_score(row)}, undisturbed {undisturbed}")
        if not_once:
            found.append(f"of {not_once} shards not exactly one attempt is done")
    elif row["stage"] == "failed":
        if row["fault"] != "host" or not row["error_class"]:
            found.append(f"good code failed with {row['fault']}, {row['error_class']}: {row['error']}")
        if scores:
            found.append("failed, and has a score")
    else:
        found.append(f"ended as {row['stage']}")
    if row["refunded"] != (row["stage"] == "failed"):
        found.append(f"{row['stage']}, refunded: {row['refunded']}")
    return found


def submissions(cluster: Cluster) -> list[JsonObject]:
    with cluster.database.read() as session:
        rows = session.execute(
            text(
                "SELECT s.id, a.name AS person, s.stage, s.fault, s.error_class, s.error, s.refunded "
                "FROM submissions s JOIN accounts a ON a.id = s.account_id WHERE a.name LIKE 'chaos-%'"
            )
        )
        return [dict(row._mapping) for row in rows]


def attempts(cluster: Cluster) -> dict[str, int]:
    """Return how often attempts had each outcome."""
    with cluster.database.read() as session:
        rows = session.execute(text("SELECT outcome, count(*) FROM shard_attempts GROUP BY outcome ORDER BY outcome"))
        return {row[0]: row[1] for row in rows}


def _count(cluster: Cluster, statement: str, **values: str) -> int:
    with cluster.database.read() as session:
        return int(session.execute(text(statement), values).scalar_one())


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def mount_full(folder: Path) -> bool:
    """Lay a file system without space over `folder`. Return False where that needs rights that we lack."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=1", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
