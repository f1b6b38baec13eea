"""A worker that was asked to stop and does not end says what it waits for, again and again, until it has ended."""

import threading
import time
from collections.abc import Callable

import structlog
from celery.worker import state

log = structlog.get_logger()
AFTER_S = 10.0  # beyond the time in which shards are given back
EVERY_S = 30.0


def begin(*, drain_s: float, after_s: float = AFTER_S, every_s: float = EVERY_S) -> None:
    """Watch from now on, in a thread that holds nothing up."""
    threading.Thread(target=_watch, args=(drain_s + after_s, every_s), name="drain", daemon=True).start()


def _watch(first_s: float, every_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    asked = time.monotonic()
    sleep(first_s)
    while True:
        log.warning("asked to stop and not ended yet", seconds=round(time.monotonic() - asked), waits_for=_unfinished())
        sleep(every_s)


def _unfinished() -> list[str]:
    """Return the tasks that processes of the pool still run, with their process and how long they have run."""
    at = time.time()  # as Celery notes it
    return [
        f"{request.name} in process {request.worker_pid} for {at - request.time_start:.0f} s"
        if request.time_start
        else f"{request.name}, not begun"
        for request in tuple(state.active_requests)
    ] or ["its processes' own end"]
