"""A complete embedded instance for all tests here: real web server, Redis, worker and sandbox, reached over HTTP."""

import os
import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from lethe.client.api import JsonObject, LetheClient
from server.cli.serve import organiser_credentials
from server.config import Settings
from server.db import Database
from server.embedded.instance import running
from server.models.evaluation import Evaluation, Shard, ShardKind
from tests.support.processes import descendants

LOOK_EVERY_S = 0.3  # most looks are requests, and cost the server as much as the tests' own work if they come faster
PATIENCE_S = 540.0  # a wait ends with its condition: this only ends a test that fails, on however busy a machine
TOML = """
slug = "{slug}"
title = "Tiny digits"
opens_at = {opens}
closes_at = {closes}
n_models = {n}
shard_runs = {shard}
[scoring]
attacks = "reference"  # scores of equal outputs are equal to the bit, whatever their code
[dataset]
name = "digits"
options = {{ noise = 1.0, seed = 7 }}
[network]
name = "mlp"
options = {{ hidden = [16] }}
[training]
epochs = 6
learning_rate = 0.1
[splits]
seed = 18446744073709551617
train_size = 400
test_fraction = 0.4
[splits.forget]
by = "random"
fraction = 0.1
[limits]
wall_time_s = 600
run_wall_time_floor_s = {floor}
memory_mib = 512
submissions_per_day = 100
log_kib = 64
"""
ONE_STEP = """
import torch
def unlearning(net, retain_loader, forget_loader, val_loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for batch in retain_loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(batch["image"]), batch["age_group"]).backward()
        optimizer.step()
"""


def competition_toml(
    *, slug: str = "tiny", n: int = 8, shard: int = 4, floor: float = 8.0, opened_ago: timedelta = timedelta(hours=1)
) -> str:
    moment = datetime.now(UTC).replace(microsecond=0)
    return TOML.format(
        slug=slug,
        opens=(moment - opened_ago).isoformat(),
        closes=(moment + timedelta(days=1)).isoformat(),
        n=n,
        shard=shard,
        floor=floor,
    )


@dataclass
class Instance:
    """A running instance, and people to take part in its competitions."""

    url: str
    settings: Settings
    organiser: LetheClient
    database: Database
    clients: list[LetheClient] = field(default_factory=list)

    def participant(self, name: str) -> LetheClient:
        client = LetheClient(self.url)
        client.register(name, f"{name}-and-a-long-password")
        client.log_in(name, f"{name}-and-a-long-password")
        self.clients.append(client)
        return client

    def workers(self) -> list[int]:
        """Return the ids of the processes that run shards: Celery's pool children."""
        return [
            pid
            for pid, command in descendants(os.getpid())
            if "-m worker" in command and "beat" in command and parent_is_worker(pid)
        ]


def parent_is_worker(pid: int) -> bool:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        return b"-m\0worker\0" in Path(f"/proc/{parent}/cmdline").read_bytes()
    except OSError:  # it has ended
        return False


@contextmanager
def running_instance(home: Path, **changes: object) -> Iterator[Instance]:
    """Run an instance without a competition. changes: to its settings."""
    # One shard at a time: each more means more processes that import torch, on cores that are all taken.
    values = {"port": 0, "sweep_interval_s": 1.0, "worker_concurrency": 1, "close_grace_s": 0.0} | changes
    settings = Settings(home=home, **values)  # type: ignore[arg-type]
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.model_dump(
                include={"lease_s", "sweep_interval_s", "heartbeat_s", "close_grace_s"}
            ).items():
                patch.setenv(f"LETHE_{name.upper()}", str(value))
            started = stack.enter_context(running(settings))
        organiser = stack.enter_context(LetheClient(started.url))
        organiser.log_in(*organiser_credentials(settings))
        database = Database(settings.resolved_database_url)
        stack.callback(database.dispose)
        instance = Instance(started.url, settings, organiser, database)
        yield instance
        for client in instance.clients:
            client.close()


def open_competition(instance: Instance, toml: str, *, within_s: float = PATIENCE_S) -> None:
    """Create, prepare and open a competition, beside those that the instance has."""
    organiser, slug = instance.organiser, tomllib.loads(toml)["slug"]
    organiser.create_competition(toml)
    organiser.prepare(slug)
    wait_until(lambda: organiser.competition(slug)["state"] in ("ready", "open"), within_s=within_s)
    organiser.open(slug)


@contextmanager
def open_instance(home: Path, *, toml: str, **changes: object) -> Iterator[Instance]:
    """Run an instance of its own with one open competition."""
    with running_instance(home, **changes) as instance:
        open_competition(instance, toml)
        yield instance


def wait_until(condition: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(LOOK_EVERY_S)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def wait_for_end(client: LetheClient, submission: JsonObject, *, within_s: float = PATIENCE_S) -> JsonObject:
    """Return the submission at its end."""
    deadline = time.monotonic() + within_s
    while True:
        found = client.submission(submission["id"])
        if found["stage"] in ("scored", "failed", "cancelled"):
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {found['stage']} after {within_s:g} s: {found}")
        time.sleep(LOOK_EVERY_S)


def shards_of(session: Session, submission_id: str) -> list[Shard]:
    """Return the shards of a submission's runs, in the order of the runs."""
    runs = select(Shard).join(Evaluation, Evaluation.id == Shard.evaluation_id)
    of_submission = Evaluation.submission_id == submission_id, Shard.kind == ShardKind.RUNS.value
    return list(session.scalars(runs.where(*of_submission).order_by(Shard.first_run)))


@pytest.fixture(scope="package")
def empty_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """The instance of this folder's tests: each module opens competitions with slugs of its own on it."""
    with running_instance(tmp_path_factory.mktemp("lethe"), lease_s=4.0) as opened:
        yield opened


@pytest.fixture(scope="package")
def instance(empty_instance: Instance) -> Instance:
    """The instance with the open competition `tiny`, which modules share: each has participants of its own."""
    open_competition(empty_instance, competition_toml())
    return empty_instance
