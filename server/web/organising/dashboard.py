"""Is everything healthy? What the organisers' dashboard says, and when it says that something is not."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy.orm import Session

from server.competitions import service as competitions
from server.config import get_settings
from server.db import now
from server.models.account import Account, Role
from server.models.competition import Competition, Split, SplitState
from server.models.worker import Worker
from server.web.formats import relative
from server.web.organising import dashboard_repository as repository
from server.web.organising.dashboard_repository import FailureCount, Running, Waiting

RATE_WINDOW = timedelta(hours=1)
FAILURE_WINDOW = timedelta(days=7)
WORKER_IS_LOST_AFTER = timedelta(minutes=5)
LONG_WAIT = timedelta(minutes=15)
SILENT = timedelta(seconds=90)
LITTLE_DISK = 0.05
MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Warning_:  # noqa: N801 (Warning is Python's own)
    """One thing that is not in order, and what it may come from."""

    text: str
    is_bad: bool


@dataclass(frozen=True)
class Host:
    """Disk and memory of this web server's machine, bytes."""

    disk_free: int
    disk_total: int
    memory_free: int | None


@dataclass(frozen=True)
class Dashboard:
    """Everything at one moment."""

    at: datetime
    competitions: list[Competition]
    waiting: list[Waiting]
    running: list[Running]
    workers: Sequence[Worker]
    runs_left: int
    runs_per_hour: int
    unfinished: int
    failures: list[FailureCount]
    splits: Sequence[tuple[str, Split]]
    host: Host
    warnings: list[Warning_]

    @property
    def empty_in_s(self) -> float | None:
        """Seconds until the queue is empty at the pace of the last hour; None if nothing was done in it."""
        return 3600 * self.runs_left / self.runs_per_hour if self.runs_per_hour and self.runs_left else None


def organised(session: Session, viewer: Account) -> list[Competition]:
    """Return the competitions that the viewer runs."""
    visible = competitions.list_visible(session, account=viewer)
    mine = repository.organised_by(session, viewer.id)
    return [c for c in visible if viewer.role == Role.ADMINISTRATOR or c.id in mine]


def look(session: Session, shown: list[Competition]) -> Dashboard:
    """Return the state of these competitions and of the machine."""
    at = now()
    ids = [competition.id for competition in shown]
    done = repository.finished_shards(session, ids, since=at - RATE_WINDOW)
    waiting, running = repository.waiting(session, ids), repository.running(session, ids)
    workers = repository.workers(session, seen_after=at - timedelta(days=1))
    splits = repository.splits(session, ids)
    host = host_of(get_settings().home)
    return Dashboard(
        at=at,
        competitions=shown,
        waiting=waiting,
        running=running,
        workers=workers,
        runs_left=repository.queued_runs(session, ids),
        runs_per_hour=sum(runs for _, runs in done),
        unfinished=repository.unfinished(session, ids),
        failures=repository.failures(session, ids, since=at - FAILURE_WINDOW),
        splits=splits,
        host=host,
        warnings=[
            *_of_queue(waiting, running, workers, at=at),
            *_of_splits(splits),
            *_of_host(host),
        ],
    )


def host_of(home: Path) -> Host:
    """Return the machine's free disk and memory."""
    folder = next(path for path in (home.absolute(), *home.absolute().parents) if path.exists())
    disk = shutil.disk_usage(folder)
    return Host(disk_free=disk.free, disk_total=disk.total, memory_free=_memory_free())


def _memory_free() -> int | None:
    if not MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024


def _of_queue(
    waiting: list[Waiting], running: list[Running], workers: Sequence[Worker], *, at: datetime
) -> list[Warning_]:
    found = []
    alive = [worker for worker in workers if at - worker.seen_at < WORKER_IS_LOST_AFTER]
    if waiting and not running and not alive:
        found.append(Warning_("Submissions wait and no worker has been seen: start one with `lethe worker`.", True))
    if waiting and at - waiting[0].oldest_at > LONG_WAIT:
        found.append(Warning_(f"The oldest run in the queue came {relative(waiting[0].oldest_at, at=at)}.", False))
    overdue = [shard for shard in running if shard.lease_expires_at and shard.lease_expires_at < at]
    if overdue:
        found.append(Warning_(f"{_shards(len(overdue))} silent beyond the lease: the worker may be gone.", True))
    return found


def _shards(number: int) -> str:
    return "One running shard is" if number == 1 else f"{number} running shards are"


def _of_splits(splits: Sequence[tuple[str, Split]]) -> list[Warning_]:
    failed = [(slug, split) for slug, split in splits if split.state == SplitState.FAILED]
    return [Warning_(f"The {split.visibility} split of {slug} could not be prepared.", True) for slug, split in failed]


def _of_host(host: Host) -> list[Warning_]:
    if host.disk_free < LITTLE_DISK * host.disk_total:
        return [Warning_(f"Only {host.disk_free / (1 << 30):.1f} GiB of disk are free.", True)]
    return []
