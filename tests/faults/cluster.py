"""A cluster of real processes that a test may kill, stop and start again: PostgreSQL, Redis, web servers, workers.

Unlike an embedded instance nothing here is started again by itself, so that what heals is Lethe and not its supervisor.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select, text

from lethe.client.api import ApiError, JsonObject, LetheClient
from server.cli.serve import organiser_credentials
from server.config import Settings
from server.db import Database
from server.embedded.redis import RedisProcess, start_redis
from server.migrate import upgrade
from server.models.competition import Split
from server.models.evaluation import Evaluation, PublicScore, Shard, ShardKind
from server.models.submission import Submission
from server.storage import Storage
from tests.end_to_end.conftest import competition_toml
from tests.faults import forked
from tests.faults.forked import Process, start
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer

Score = tuple[float, float, float, float]

LEASE_S = 3.0
LONG = "60"  # LETHE_LEASE_S of workers that must lose no lease, however late a busy machine lets their hearts beat
EVERY_S = 0.05
TIMES = {
    "LETHE_LEASE_S": str(LEASE_S),
    "LETHE_HEARTBEAT_S": "0.3",
    "LETHE_SWEEP_INTERVAL_S": "0.5",
    "LETHE_CLOSE_GRACE_S": "0",
}

ONE_STEP = """
import time, torch

def unlearning(net, retain_loader, forget_loader, val_loader):
    time.sleep({pause})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for batch in retain_loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(batch["image"]), batch["age_group"]).backward()
        optimizer.step()
        break
"""


def code(*, pause: float = 0.0, note: str = "") -> str:
    """Return a submission whose score depends on neither the pause nor the note."""
    return ONE_STEP.format(pause=pause) + f"# {note}\n"


@dataclass
class Cluster:
    """Handles of everything that runs."""

    folder: Path
    postgres: PostgresServer
    redis: RedisProcess
    settings: Settings
    environment: dict[str, str]
    url: str
    database: Database
    stack: ExitStack
    started: list[Process] = field(default_factory=list)
    usual_workers: list[Process] = field(default_factory=list)
    people: dict[str, LetheClient] = field(default_factory=dict)

    @property
    def storage(self) -> Storage:
        return Storage(self.settings.resolved_storage_url)

    def start_web(self) -> Process:
        port = self.url.rsplit(":", 1)[1]
        command = ["--factory", "server.main:create_app", "--port", port, "--log-level", "warning"]
        process = self._start("web", "uvicorn", *command)
        wait_until(self.answers)
        return process

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2, trust_env=False).is_success
        except httpx.TransportError:
            return False

    def start_worker(
        self, name: str = "worker", *, concurrency: int = 1, skew_s: float = 0.0, program: str = "worker", **more: str
    ) -> Process:
        """Start a worker. skew_s: how wrong its clock is, seconds. more: settings of its own."""
        module = "tests.faults.skewed_celery" if skew_s else program
        environment = {"LETHE_WORKER_CONCURRENCY": str(concurrency), "SKEW_S": str(skew_s)} | more
        command = ["--hostname", f"{name}@test", "--concurrency", str(concurrency)]
        options = ["--loglevel", "warning", "--without-gossip", "--without-mingle"]
        return self._start(name, module, *command, *options, **environment)

    def start_usual_worker(self, name: str = "worker") -> Process:
        """Start a worker of one process that may serve other tests too."""
        more: dict[str, Any] = {"LETHE_LEASE_S": LONG, "LETHE_MAX_ATTEMPTS": "20"}
        process = self.start_worker(name, **more)
        self.usual_workers.append(process)
        return process

    def start_remote_worker(self, token: JsonObject, **environment: str) -> Process:
        """Start a worker that has nothing of the instance's but its address and a token."""
        number = len(self.started)
        home = self.folder / f"remote-{number}"
        home.mkdir(mode=0o700)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("LETHE_", "AWS_"))}
        its = {"LETHE_HOME": str(home), "LETHE_WORKER_TOKEN": token["token"], "LETHE_WORKER_CONCURRENCY": "1"}
        process = start(
            f"remote-{number}",
            "lethe.cli.main",
            ["worker", "--server", self.url],
            environment=own | its | environment,
            log=home / "worker.log",
        )
        self.started.append(process)
        return process

    def let_leases_expire(self) -> None:
        """Let the time of all leases be over, as if nobody had prolonged them."""
        with self.database.engine.begin() as connection:
            connection.execute(text("UPDATE shards SET lease_expires_at = now() WHERE state = 'leased'"))

    def idle_worker(self) -> Process | None:
        """Return a usual worker that is alive and has nothing to do, None if there is none."""
        with self.database.read() as session:
            if session.query(Shard).filter(Shard.state.in_(["queued", "leased"])).count():
                return None
        return next((worker for worker in self.usual_workers if worker.is_alive), None)

    def end_workers(self, *, but: Process | None = None) -> None:
        """Kill what is alive, except the web server and `but`."""
        for process in self.started:
            if process.is_alive and process.name != "web" and process is not but:
                process.kill()

    def start_beat(self) -> Process:
        return self._start("beat", "worker", "beat", "--loglevel", "warning")

    def _start(self, name: str, module: str, *arguments: str, **environment: str) -> Process:
        log = self.folder / "logs" / f"{name}-{len(self.started)}.log"
        log.parent.mkdir(exist_ok=True)
        process = start(name, module, arguments, environment=self.environment | environment, log=log)
        self.started.append(process)
        return process

    def person(self, name: str) -> LetheClient:
        """Return a client of the person, who is registered at the first call."""
        if name not in self.people:
            client = LetheClient(self.url)
            client.register(name, f"{name}-and-a-long-password")
            client.log_in(name, f"{name}-and-a-long-password")
            self.people[name] = client
        return self.people[name]

    def submit(self, person: str, program: str) -> JsonObject:
        path = self.folder / "submission.py"
        path.write_text(program)
        return self.person(person).submit("tiny", path)

    def wait_for_end(
        self, person: str, submission: JsonObject, *, within_s: float = 150.0, every_s: float = EVERY_S
    ) -> JsonObject:
        """Return the submission at its end. It is looked for in the database: a request would cost the server time."""
        wait_until(
            lambda: self.stage(submission) in ("scored", "failed", "cancelled"),
            within_s=within_s,
            every_s=every_s,
            about=lambda: str(self.person(person).submission(submission["id"])),
        )
        return self.person(person).submission(submission["id"])

    def stage(self, submission: JsonObject) -> str:
        with self.database.read() as session:
            return session.get_one(Submission, submission["id"]).stage

    def exact_score(self, submission: JsonObject) -> Score:
        with self.database.read() as session:
            row = session.query(PublicScore).filter_by(submission_id=submission["id"]).one()
            return row.final_score, row.forgetting_quality, row.retain_ratio, row.test_ratio

    def runs_done(self, submission: JsonObject) -> int:
        """Return how many runs on hidden data its workers have reported."""
        with self.database.read() as session:
            statement = (
                select(func.coalesce(func.sum(Shard.runs_done), 0))
                .join(Evaluation, Evaluation.id == Shard.evaluation_id)
                .where(Evaluation.submission_id == submission["id"], Shard.kind == ShardKind.RUNS.value)
            )
            return int(session.execute(statement).scalar_one())


def wait_until(
    condition: Callable[[], bool],
    *,
    within_s: float = 240.0,
    every_s: float = EVERY_S,
    about: Callable[[], str] = lambda: "",
) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s {about()}")
        time.sleep(every_s)


def split_row(cluster: Cluster) -> Split:
    with cluster.database.read() as session:
        return session.query(Split).filter_by(visibility="private").one()


@contextmanager
def running_cluster(folder: Path, *, toml: str = "", **environment: str) -> Iterator[Cluster]:
    """Run a cluster with one web server and one open competition, and no worker once that is prepared."""
    forked.begin()
    with ExitStack() as stack:
        postgres = PostgresServer()
        stack.callback(postgres.remove)
        postgres.start()
        redis_folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lethe-redis-")))
        redis = start_redis(redis_folder)
        variables = {
            "LETHE_HOME": str(folder / "home"),
            "LETHE_DATABASE_URL": postgres.url(postgres.create_database()),
            "LETHE_REDIS_URL": redis.broker_url,
            "LETHE_STORAGE_URL": (folder / "storage").as_uri(),
            **TIMES,
            **environment,
        }
        (folder / "home").mkdir(mode=0o700, parents=True)
        settings = Settings(
            home=folder / "home",
            database_url=variables["LETHE_DATABASE_URL"],
            redis_url=redis.broker_url,
            storage_url=variables["LETHE_STORAGE_URL"],
        )
        upgrade(settings.resolved_database_url)
        database = Database(settings.resolved_database_url)
        stack.callback(database.dispose)
        cluster = Cluster(
            folder=folder,
            postgres=postgres,
            redis=redis,
            settings=settings,
            environment=os.environ | variables,
            url=f"http://127.0.0.1:{free_port()}",
            database=database,
            stack=stack,
        )
        stack.callback(_end_all, cluster)
        cluster.start_web()
        cluster.start_worker("preparing")
        _open_competition(cluster, toml or competition_toml())
        cluster.end_workers()
        yield cluster


def _open_competition(cluster: Cluster, toml: str) -> None:
    with LetheClient(cluster.url) as organiser:
        organiser.log_in(*organiser_credentials(cluster.settings))
        organiser.create_competition(toml)
        organiser.prepare("tiny")
        wait_until(lambda: organiser.competition("tiny")["state"] in ("ready", "open"), within_s=300)
        if organiser.competition("tiny")["state"] == "ready":
            with suppress(ApiError):  # it may just have opened by itself
                organiser.open("tiny")
        wait_until(lambda: organiser.competition("tiny")["state"] == "open")


def _end_all(cluster: Cluster) -> None:
    for client in cluster.people.values():
        client.close()
    for process in cluster.started:
        if process.is_alive:
            process.kill()
    cluster.redis.stop()


def restart_redis(cluster: Cluster) -> None:
    """Start Redis again in its folder: with nothing in it, as after a crash."""
    cluster.redis = start_redis(cluster.redis.folder)
