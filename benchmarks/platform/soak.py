"""An hour of ordinary use on a small fleet: does anything grow? `python -m benchmarks.platform.soak [--minutes 60]`

One web server, one worker, the scheduler, PostgreSQL and Redis on this machine, started as a deployment starts them;
uploads, evaluations, people who read and people who watch a submission, all the time. Memory, descriptors and threads
of every process, Redis' memory and keys and the rows of the tables that should not grow are looked at every few
seconds. The last quarter is compared with the second one: the first is for warming up. Prints a table and a verdict,
and ends with 1 if something grew.
"""

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import redis
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from benchmarks.shared import options
from lethe.client.api import ApiError
from tests.faults.cluster import Cluster, code, running_cluster, wait_until
from tests.support.http_connection import Connection
from tests.support.processes import descendants
from tests.support.seeded_competition import session_cookie

LOOK_EVERY_S = 5.0
# A lease that a crowded machine does not lose; sweeps far more often than a deployment's.
SETTINGS = {
    "LETHE_UPLOADS_PER_10_MIN": "0",
    "LETHE_WORKER_CONCURRENCY": "1",
    "LETHE_LEASE_S": "30",
    "LETHE_HEARTBEAT_S": "3",
}
FLAT_TABLES = ("workers", "splits", "model_shards")
SLACK = {"MiB": 8.0, "descriptors": 4.0, "threads": 4.0, "keys": 16.0, "rows": 4.0}
SHARE = 0.05  # by which a figure may be larger at the end, beyond its slack


@dataclass(frozen=True)
class Program:
    """A process started as a deployment does. Those of a test are forked, and copy what they share as they touch it."""

    name: str
    popen: subprocess.Popen[bytes]

    @classmethod
    def start(cls, cluster: Cluster, name: str, *arguments: str) -> "Program":
        with (cluster.folder / "logs" / f"soak-{name}.log").open("wb") as log:
            command = [sys.executable, "-m", *arguments]
            return cls(name, subprocess.Popen(command, env=cluster.environment, stdout=log, stderr=log))

    def pids(self) -> list[int]:
        """Return the ids of the process and of its own kind below it, not of the sandboxes."""
        if self.popen.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.popen.returncode}")
        below = [
            pid for pid, command in descendants(self.popen.pid) if "bwrap" not in command and "sandbox" not in command
        ]
        return [self.popen.pid, *below]

    def stop(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(60)
        except subprocess.TimeoutExpired:
            self.popen.kill()


@dataclass(frozen=True)
class Verdict:
    """How a figure was in the second and in the last quarter."""

    name: str
    unit: str
    early: float
    late: float

    @property
    def grew(self) -> bool:
        return self.late > self.early * (1 + SHARE) + SLACK[self.unit]


def main() -> int:
    given = options(__doc__, minutes=60.0, upload_every=10.0, watchers=20, readers=4)
    folder = Path(tempfile.mkdtemp(prefix="lethe-soak-"))
    with running_cluster(folder, **SETTINGS) as cluster:
        programs = start_programs(cluster)
        try:
            found, done = soak(cluster, programs, seconds=60 * given.minutes, given=given)
        finally:
            for program in programs:
                program.stop()
    print(dict(done))
    print(f"{'figure':<34}{'second quarter':>16}{'last quarter':>14}")
    for one in found:
        mark = "  GREW" if one.grew else ""
        print(f"{one.name:<34}{one.early:>12.1f} {one.unit[:3]}{one.late:>10.1f} {one.unit[:3]}{mark}")
    grown = [one.name for one in found if one.grew]
    if done["failed"]:
        grown.append("failed requests")
    print(f"verdict: {'nothing grew' if not grown else 'not flat: ' + ', '.join(grown)}")
    return 1 if grown else 0


def start_programs(cluster: Cluster) -> list[Program]:
    """Put processes like a deployment's in place of the cluster's own, which are forked."""
    for process in cluster.started:
        process.stop()
    web = Program.start(cluster, "web", "server", "--port", cluster.url.rsplit(":", 1)[1], "--log-level", "warning")
    wait_until(cluster.answers, within_s=120)
    return [
        web,
        Program.start(cluster, "worker", "worker", "--loglevel", "warning", "--without-gossip", "--without-mingle"),
        Program.start(cluster, "beat", "worker", "beat", "--loglevel", "warning"),
    ]


def soak(
    cluster: Cluster, programs: list[Program], *, seconds: float, given: Namespace
) -> tuple[list[Verdict], dict[str, int]]:
    """Use the cluster for so long. Return how each figure went, and how much was done."""
    done: dict[str, int] = defaultdict(int)
    is_over = threading.Event()
    first = cluster.submit("watched", code(note="watched"))
    cookie = session_cookie(cluster.database, "watched")
    port = int(cluster.url.rsplit(":", 1)[1])
    paths = ["/competitions/tiny/leaderboard", "/competitions/tiny/submissions", f"/submissions/{first['id']}"]
    threads = [
        threading.Thread(target=_upload, args=(cluster, is_over, given.upload_every, done)),
        threading.Thread(target=lambda: asyncio.run(_read(port, paths, cookie, given.readers, is_over, done))),
        threading.Thread(target=lambda: asyncio.run(_watch(port, cookie, given.watchers, is_over, done))),
    ]
    for thread in threads:
        thread.start()
    series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    started = time.monotonic()
    while time.monotonic() < started + seconds:
        time.sleep(LOOK_EVERY_S)
        try:
            looked = figures(cluster, programs)
        except (OperationalError, redis.RedisError):  # a machine that stood still for half a minute ends no measurement
            done["missed"] += 1
            continue
        for key, value in looked.items():
            series[key].append((time.monotonic() - started, value))
    is_over.set()
    for thread in threads:
        thread.join(90)
    verdicts = [
        Verdict(name, unit, _median(values, seconds / 4, seconds / 2), _median(values, 3 * seconds / 4, seconds))
        for (name, unit), values in series.items()
    ]
    return verdicts, done


def figures(cluster: Cluster, programs: list[Program]) -> dict[tuple[str, str], float]:
    """Return every figure by its name and unit. A process's figures are added up with those of its children."""
    found: dict[tuple[str, str], float] = {}
    for program in programs:
        pids = program.pids()
        for unit, of in (("MiB", own_mib), ("descriptors", _count("fd")), ("threads", _count("task"))):
            found[f"{program.name}: {unit}", unit] = sum(known(of, pid) for pid in pids)
    worker = next(program for program in programs if program.name == "worker")
    found["worker: sandboxes", "rows"] = sum("bwrap" in command for _, command in descendants(worker.popen.pid))
    with redis.Redis.from_url(cluster.redis.client_url) as client:
        found["Redis: memory", "MiB"] = client.info("memory")["used_memory"] / 2**20
        found["Redis: keys", "keys"] = float(client.dbsize())
        queues = [key for key in client.keys("*") if client.type(key) == b"list"]
        found["Redis: messages", "keys"] = float(sum(client.llen(key) for key in queues))
    with cluster.database.read() as session:
        for table in FLAT_TABLES:
            found[f"table {table}", "rows"] = float(session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())
    stage = cluster.settings.scratch / "stage"
    found["staging folders", "rows"] = float(sum(path.is_dir() for path in stage.iterdir())) if stage.exists() else 0.0
    return found


def known(of: Callable[[int], float], pid: int) -> float:
    try:
        return of(pid)
    except (OSError, ValueError):
        return 0.0  # it ended while we looked


def own_mib(pid: int) -> float:
    """Return the memory that is in no file, a page shared by n processes as its nth part.

    Added up over a worker and what it forked, that is the family's: a page that one of them copies when it writes to
    it would look like growth if only private pages counted.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")) / 1024


def _count(folder: str) -> Callable[[int], float]:
    return lambda pid: float(len(list(Path(f"/proc/{pid}/{folder}").iterdir())))


def _median(values: list[tuple[float, float]], begin_s: float, end_s: float) -> float:
    return median([value for at, value in values if begin_s <= at <= end_s] or [0.0])


def _upload(cluster: Cluster, is_over: threading.Event, every_s: float, done: dict[str, int]) -> None:
    number, waiting = 0, {}
    while not is_over.wait(every_s):
        number += 1
        person = f"uploader-{number % 5}"
        try:
            sent = cluster.submit(person, code(note=f"upload {number}"))
            done["uploads"] += 1
            waiting[sent["id"]] = person
            for submission_id, whose in list(waiting.items()):
                if cluster.person(whose).submission(submission_id)["stage"] == "scored":
                    done["scored"] += 1
                    del waiting[submission_id]
        except ApiError as error:
            done["refused" if error.http_status == 429 else "failed"] += 1
            print(f"upload {number}: {type(error).__name__}: {error}", flush=True)


async def _read(
    port: int, paths: list[str], cookie: str, readers: int, is_over: threading.Event, done: dict[str, int]
) -> None:
    async def one(number: int) -> None:
        connection = await Connection.open(port, cookie=cookie if number % 2 else "")
        count = 0
        while not is_over.is_set():
            count += 1
            path = paths[count % len(paths)] if number % 2 else f"{paths[0]}?q={count % 1000}"
            answer = await connection.get(path)
            done["read" if answer.status == 200 else "failed"] += 1
            if answer.status != 200:
                print(f"{path}: {answer.status} after {answer.seconds:.2f} s", flush=True)
            await asyncio.sleep(0.2)
        connection.close()

    await asyncio.gather(*(one(number) for number in range(readers)))


async def _watch(port: int, cookie: str, watchers: int, is_over: threading.Event, done: dict[str, int]) -> None:
    """Watch the list of submissions, and connect again when a stream ends, as browsers do."""

    async def one() -> None:
        while not is_over.is_set():
            connection = await Connection.open(port, cookie=cookie)
            await connection.first_event("/competitions/tiny/submissions/events")
            done["streams"] += 1
            for _ in range(20):
                if is_over.is_set():
                    break
                await asyncio.sleep(1.0)
            connection.close()

    await asyncio.gather(*(one() for _ in range(watchers)))


if __name__ == "__main__":
    sys.exit(main())
