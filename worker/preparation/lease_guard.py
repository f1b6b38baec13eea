"""Training under a lease: progress goes out with the heartbeat, and a lost lease or a stopping worker ends it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lethe.preparation.step_cache import OnProgress, PreparationProgress
from server.config import Settings
from worker.host import graceful_shutdown
from worker.host.heartbeat import Heart


class LeaseLost(Exception):
    """The work is another worker's now, or nobody's."""


class WorkerStops(Exception):
    """This worker was asked to stop, and its time for that is over."""


class _Newest:
    """The newest progress, passed from the training thread to the heartbeat's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress = PreparationProgress("starting", 0, 1)

    def set(self, progress: PreparationProgress) -> None:
        with self._lock:
            self._progress = progress

    def get(self) -> PreparationProgress:
        with self._lock:
            return self._progress


@contextmanager
def watched(settings: Settings, beat: Callable[[PreparationProgress], bool]) -> Iterator[OnProgress]:
    """Yield the progress callback of a preparation; `beat` is called with the newest progress now and then.

    A progress call raises LeaseLost once a heartbeat has returned False, and WorkerStops when the worker must stop.
    """
    newest = _Newest()
    with Heart(lambda: beat(newest.get()), every_s=min(settings.heartbeat_s, settings.lease_s / 3)) as heart:

        def tell(progress: PreparationProgress) -> None:
            newest.set(progress)
            if heart.stopped:
                raise LeaseLost
            if graceful_shutdown.is_over():
                raise WorkerStops

        yield tell
