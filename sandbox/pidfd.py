"""A process held by its file descriptor, which stays valid when the process id is reused."""

import contextlib
import os
import selectors
import signal
from pathlib import Path

from sandbox.errors import RunWillNotDie

_DEATH_TIMEOUT_S = 20.0
_EXITING = 0x4  # the kernel's PF_EXITING


class ProcessHandle:
    """Process 1 of a run's namespace: when it is killed, the kernel kills all the others."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; to one that is gone this does nothing."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.fd, number)

    def has_ended(self, *, timeout_s: float = 0.0) -> bool:
        """Whether it, and so every process of its namespace, is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.fd, selectors.EVENT_READ)
            return bool(selector.select(timeout_s))

    def is_ending(self) -> bool:
        """Whether it is on its way out: its files are closed some time before it is gone."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True
        return bool(int(stat.rpartition(")")[2].split()[6]) & _EXITING)

    def wait_for_death(self) -> None:
        """Wait until a killed process is gone. Raises RunWillNotDie if it stays."""
        if not self.has_ended(timeout_s=_DEATH_TIMEOUT_S):
            raise RunWillNotDie(f"process {self.pid} is still there {_DEATH_TIMEOUT_S:g} s after it was killed")

    def close(self) -> None:
        os.close(self.fd)
