"""What an organiser is warned of: a queue that stands still, lost workers, failed splits, a full disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from server.dashboard.host import Host
from server.dashboard.repository import Running, Waiting
from server.datetime_format import relative
from server.models.competition import Split, SplitState
from server.models.worker import Worker

WORKER_IS_LOST_AFTER = timedelta(minutes=5)
LONG_WAIT = timedelta(minutes=15)
LITTLE_DISK = 0.05  # share of the disk that is free


@dataclass(frozen=True)
class HealthWarning:
    """One thing that is not in order, and its probable cause. is_bad: needs somebody now."""

    text: str
    is_bad: bool


def queue_warnings(
    waiting: Sequence[Waiting], running: Sequence[Running], workers: Sequence[Worker], *, at: datetime
) -> list[HealthWarning]:
    found = []
    alive = [worker for worker in workers if at - worker.seen_at < WORKER_IS_LOST_AFTER]
    if waiting and not running and not alive:
        found.append(
            HealthWarning("Submissions wait and no worker has been seen: start one with `lethe worker`.", is_bad=True)
        )
    if waiting and at - waiting[0].oldest_at > LONG_WAIT:
        text = f"The oldest run in the queue came {relative(waiting[0].oldest_at, at=at)}."
        found.append(HealthWarning(text, is_bad=False))
    overdue = [shard for shard in running if shard.lease_expires_at and shard.lease_expires_at < at]
    if overdue:
        text = f"{_shards(len(overdue))} silent beyond the lease: the worker may be gone."
        found.append(HealthWarning(text, is_bad=True))
    return found


def split_warnings(splits: Sequence[tuple[str, Split]]) -> list[HealthWarning]:
    return [
        HealthWarning(f"The {split.visibility} split of {slug} could not be prepared.", is_bad=True)
        for slug, split in splits
        if split.state == SplitState.FAILED
    ]


def host_warnings(host: Host) -> list[HealthWarning]:
    if host.disk_free < LITTLE_DISK * host.disk_total:
        return [HealthWarning(f"Only {host.disk_free / (1 << 30):.1f} GiB of disk are free.", is_bad=True)]
    return []


def _shards(number: int) -> str:
    return "One running shard is" if number == 1 else f"{number} running shards are"
