"""A complete embedded instance per test module: real web server, Redis, worker and sandbox, reached over HTTP."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lethe.client.api import ApiError, JsonObject, LetheClient
from server.cli.seed_accounts import organiser_credentials
from server.config import Settings
from server.db import Database
from server.embedded.instance import running
from tests.support.processes import descendants

TOML = """
slug = "tiny"
title = "Tiny digits"
opens_at = {opens}
closes_at = {closes}
n_models = {n}
shard_runs = {shard}
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
    *, n: int = 12, shard: int = 4, floor: float = 20.0, opened_ago: timedelta = timedelta(hours=1)
) -> str:
    moment = datetime.now(UTC).replace(microsecond=0)
    return TOML.format(
        opens=(moment - opened_ago).isoformat(),
        closes=(moment + timedelta(days=1)).isoformat(),
        n=n,
        shard=shard,
        floor=floor,
    )


@dataclass
class Instance:
    """A running instance with one open competition, and people to take part in it."""

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
def open_instance(home: Path, *, toml: str, prepared_within_s: float = 120.0, **changes: object) -> Iterator[Instance]:
    # One shard at a time: each more means more processes that import torch, on cores that are all taken.
    values = {"port": 0, "sweep_interval_s": 1.0, "worker_concurrency": 1} | changes
    settings = Settings(home=home, **values)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.model_dump(include={"lease_s", "sweep_interval_s", "heartbeat_s"}).items():
            patch.setenv(f"LETHE_{name.upper()}", str(value))
        with running(settings) as instance, LetheClient(instance.url) as organiser:
            organiser.log_in(*organiser_credentials(settings))
            organiser.create_competition(toml)
            organiser.prepare("tiny")
            wait_until(lambda: organiser.competition("tiny")["state"] in ("ready", "open"), within_s=prepared_within_s)
            if organiser.competition("tiny")["state"] == "ready":
                with suppress(ApiError):  # it may just have opened by itself
                    organiser.open("tiny")
            wait_until(lambda: organiser.competition("tiny")["state"] == "open")
            database = Database(settings.resolved_database_url)
            opened = Instance(instance.url, settings, organiser, database)
            yield opened
            for client in opened.clients:
                client.close()
            database.dispose()


def wait_until(condition: Callable[[], bool], *, within_s: float = 180.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(0.1)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def wait_for_end(client: LetheClient, submission: JsonObject, *, within_s: float = 240.0) -> JsonObject:
    """Return the submission at its end."""
    deadline = time.monotonic() + within_s
    while True:
        found = client.submission(submission["id"])
        if found["stage"] in ("scored", "failed", "cancelled"):
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {found['stage']} after {within_s:g} s: {found}")
        time.sleep(0.2)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with open_instance(tmp_path_factory.mktemp("lethe"), toml=competition_toml(), lease_s=4.0) as opened:
        yield opened
