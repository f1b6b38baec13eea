"""How many of a worker's processes may prepare at a time: one is left for submissions while any competition is open."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from server.competitions.service import any_is_open
from worker.context import WorkerContext


@contextmanager
def preparation_slot(context: WorkerContext) -> Iterator[bool]:
    """Yield whether this process may prepare now. If not, a later message tells it, or another, of the work again."""
    settings = context.settings
    with context.database.read() as session:
        kept_free = 1 if any_is_open(session) else 0
    n_slots = max(1, settings.worker_concurrency - kept_free)
    worker = os.getppid()  # its processes are its children: workers that share a scratch folder count by themselves
    with ExitStack() as stack:
        yield any(_taken(stack, settings.scratch / f"preparing-{worker}-{slot}.lock") for slot in range(n_slots))


def _taken(stack: ExitStack, path: Path) -> bool:
    """Hold a slot until the stack ends, if it is free. The kernel frees it when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = stack.enter_context(path.open("ab"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
