"""A preparation at work: it reports on itself now and then, and ends where it takes more of its host than it may."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe.data.errors import InvalidSplit
from lethe.preparation.step_cache import OnProgress, PreparationProgress
from server.config import Settings
from worker.host import graceful_shutdown
from worker.host.heartbeat import Heart
from worker.host.worker_info import memory_share_mib
from worker.jobs import Stopped

LOOK_EVERY_S = 5.0


class Quotas:
    """What a preparation may use of its host: memory of this process, and disk of the folder that it fills."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._memory_mib = settings.preparation_memory_mib or memory_share_mib(settings)
        self._disk_mib = settings.preparation_disk_mib
        self._folder = folder
        self._looked_at = -LOOK_EVERY_S

    def check(self) -> None:
        """Raise InvalidSplit where a quota is passed. Looks at most once in LOOK_EVERY_S."""
        if time.monotonic() < self._looked_at + LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        memory_mib = resident_mib()
        if memory_mib > self._memory_mib:
            raise InvalidSplit(
                f"the preparation takes {memory_mib:,} MiB of memory; this instance allows {self._memory_mib:,} MiB "
                "(LETHE_PREPARATION_MEMORY_MIB): make the network, the batches or the data smaller"
            )
        disk_mib = sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file()) // 2**20
        if disk_mib > self._disk_mib:
            raise InvalidSplit(
                f"the preparation takes {disk_mib:,} MiB of disk; this instance allows {self._disk_mib:,} MiB "
                "(LETHE_PREPARATION_DISK_MIB): make fewer models, or keep the weights of fewer"
            )


def resident_mib() -> int:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def _cpu_time_s() -> float:
    """Return the processor time of this process and of the children that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@contextmanager
def watched(
    settings: Settings, beat: Callable[[PreparationProgress, float], bool], *, folder: Path
) -> Iterator[OnProgress]:
    """Yield a progress callback that tells `beat` now and then. It raises Stopped, or InvalidSplit beyond limits."""
    newest, quotas, counted_s = PreparationProgress("starting", 0, 1), Quotas(settings, folder), _cpu_time_s()

    def send() -> bool:
        nonlocal counted_s
        now_s = _cpu_time_s()
        held = beat(newest, now_s - counted_s)
        counted_s = now_s
        return held

    with Heart(send, every_s=min(settings.heartbeat_s, settings.lease_s / 3)) as heart:

        def tell(progress: PreparationProgress) -> None:
            nonlocal newest
            newest = progress
            if heart.stopped or graceful_shutdown.is_over():
                raise Stopped
            quotas.check()

        yield tell
