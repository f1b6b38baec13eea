"""The heartbeat of a lease: a thread that reports progress and notices when the work is no longer ours."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

log = structlog.get_logger()


class Heart:
    """Calls `beat` every `every_s` until left. `stopped` is set once `beat` returns False.

    A beat that raises is a database that does not answer: the next one tries again, and if none succeeds the
    lease runs out on the other side, which is what leases are for.
    """

    def __init__(self, beat: Callable[[], bool], *, every_s: float) -> None:
        self._beat = beat
        self._every_s = every_s
        self._leave = threading.Event()
        self._lost = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @property
    def stopped(self) -> bool:
        return self._lost.is_set()

    def _run(self) -> None:
        while not self._leave.wait(self._every_s):
            try:
                if not self._beat():
                    self._lost.set()
                    return
            except Exception as error:
                log.warning("heartbeat missed", error=str(error))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave.set()
        self._thread.join()
