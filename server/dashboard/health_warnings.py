"""What an organiser is warned of: a queue that stands still, lost workers, failed splits, a full disk."""

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from pydantic import Field

from lethe.competition.run_limits import limit_warnings
from server.competitions.stored_file import stored_file
from server.dashboard.shown_work import FailureCount, Running, Waiting
from server.datetime_format import relative
from server.evaluations.unserved import Unserved
from server.models.competition import Competition, Split, SplitState
from server.models.submission import Fault
from server.models.worker import WorkerToken

MEMINFO = Path("/proc/meminfo")
LONG_WAIT = timedelta(minutes=15)
MANY_TEAMS = 10  # that fail alike within a week
MIN_FREE_DISK = 0.05  # share of the disk that is free


@dataclass(frozen=True)
class Host:
    """Disk and memory, bytes. memory_free: None where the system does not say."""

    disk_free: int
    disk_total: int
    memory_free: int | None


def measure_host(home: Path) -> Host:
    """Return the machine's free disk, of the file system that holds `home`, and its free memory."""
    folder = next(path for path in (home.absolute(), *home.absolute().parents) if path.exists())
    disk = shutil.disk_usage(folder)
    return Host(disk_free=disk.free, disk_total=disk.total, memory_free=_memory_free())


def _memory_free() -> int | None:
    if not MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024


@dataclass(frozen=True)
class HealthWarning:
    """One thing that is not in order, and its probable cause."""

    text: Annotated[str, Field(examples=["The public split of digits could not be prepared."])]
    is_bad: Annotated[bool, Field(description="whether it needs somebody now")]
    competition: Annotated[str, Field(description="empty where it is about all")] = ""
    href: Annotated[str, Field(description="the page where to act")] = ""
    remedy: Annotated[str, Field(description="what to do there")] = ""


def queue_warnings(waiting: Sequence[Waiting], running: Sequence[Running], *, at: datetime) -> list[HealthWarning]:
    warnings = []
    if waiting and at - waiting[0].oldest_at > LONG_WAIT:
        text = f"The oldest run in the queue came {relative(waiting[0].oldest_at, at=at)}."
        warnings.append(HealthWarning(text, is_bad=False, href="#queue-title", remedy="See the queue"))
    overdue = [shard for shard in running if shard.lease_expires_at and shard.lease_expires_at < at]
    if overdue:
        text = f"{_shards(len(overdue))} silent beyond the lease: the worker may be gone."
        warnings.append(HealthWarning(text, is_bad=True, href="#running-title", remedy="See which"))
    return warnings


def unserved_warnings(unserved: Sequence[Unserved], shown: Collection[str]) -> list[HealthWarning]:
    """Warn of work without a suitable worker. shown: ids of the competitions to look at."""
    return [
        HealthWarning(
            f"{_count(each.shards)} of {each.slug} {'waits' if each.shards == 1 else 'wait'}: {each.reason}.",
            is_bad=True,
            competition=each.slug,
            href="#workers-title",
            remedy="See the workers",
        )
        for each in unserved
        if each.competition_id in shown
    ]


def split_warnings(splits: Sequence[tuple[str, str, Competition, Split]]) -> list[HealthWarning]:
    return [
        HealthWarning(
            f"The {split.visibility} split of {_name(slug, task)} could not be prepared.",
            is_bad=True,
            competition=slug,
            href=f"/organise/{slug}",
            remedy="Read why, and prepare it again",
        )
        for slug, task, _, split in splits
        if split.state == SplitState.FAILED
    ]


def limit_warnings_of(splits: Sequence[tuple[str, str, Competition, Split]]) -> list[HealthWarning]:
    """Warn of competitions and tasks whose runs have the time to retrain."""
    warnings = {
        each.slug: HealthWarning(
            f"{_name(slug, task)}: {said}.",
            is_bad=False,
            competition=slug,
            href=f"/organise/{each.slug}/limits",
            remedy="Change the limits",
        )
        for slug, task, each, split in splits
        if split.state == SplitState.READY
        for said in limit_warnings(stored_file(each).limits, split.retraining, n_models=stored_file(each).n_models)
    }
    return list(warnings.values())


def _name(slug: str, task: str) -> str:
    return f"{task} of {slug}" if task else slug


def failure_warnings(failures: Sequence[FailureCount]) -> list[HealthWarning]:
    """Warn of failures that are no participant's fault, and of one that many teams share."""
    warnings = []
    for row in failures:
        query = urlencode({"stage": "failed", "error_class": row.error_class or ""})
        href = f"/organise/{row.competition}/submissions?{query}"
        if row.fault == Fault.HOST:
            name = _name(row.competition, row.task)
            text = f"{row.count} of {name} failed by the host's fault ({row.error_class})."
            warnings.append(HealthWarning(text, True, row.competition, href, "See them, and run them again"))
        elif row.teams >= MANY_TEAMS and row.fault == Fault.PARTICIPANT:
            name = _name(row.competition, row.task)
            text = f"{row.teams} teams of {name} failed alike ({row.error_class}): is a limit too tight?"
            warnings.append(HealthWarning(text, False, row.competition, href, "See them"))
    return warnings


def token_warnings(quarantined: Sequence[tuple[str, WorkerToken]]) -> list[HealthWarning]:
    return [
        HealthWarning(
            f"The worker token {token.name} of {slug} is quarantined: {token.quarantine_reason}.",
            is_bad=True,
            competition=slug,
            remedy="Look at its machines, and revoke it",
        )
        for slug, token in quarantined
    ]


def host_warnings(host: Host) -> list[HealthWarning]:
    if host.disk_free < MIN_FREE_DISK * host.disk_total:
        text = f"Only {host.disk_free / (1 << 30):.1f} GiB of disk are free. `lethe gc` removes what nothing refers to."
        return [HealthWarning(text, is_bad=True)]
    return []


def _count(number: int) -> str:
    return "One shard" if number == 1 else f"{number} shards"


def _shards(number: int) -> str:
    return "One running shard is" if number == 1 else f"{number} running shards are"
