"""One forked process and what the host holds of it: its pipes, its id and its control group.

It serves one run and is ended; in shard mode it serves one run after the other and stands still
in between, so that the time between two runs is nobody's.
"""

import contextlib
import json
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox.backends.base import RunPipes
from sandbox.backends.zygote_link import ZygoteLink
from sandbox.cgroups import RunGroup
from sandbox.frame_reader import FrameReader
from sandbox.pidfd import ProcessHandle
from sandbox.policy import RunPolicy
from sandbox.supervisor import Observed, RunWatch

_EXIT_TIMEOUT_S = 30.0
NOT_EXITED: Final[Mapping[str, Any]] = {"exit_code": None, "signal": None, "cpu_s": 0.0, "max_rss_kib": 0}


def start_process(
    link: ZygoteLink, message: dict[str, Any], *, policy: RunPolicy, group: RunGroup | None
) -> "RunProcess":
    """Make a process for a run and put its limits around it; it waits at its gate. Takes the group over."""
    with contextlib.ExitStack() as stack:
        if group is not None:
            stack.callback(group.close)
        pipes = link.fork(message)
        stack.callback(pipes.close)
        pid = link.wait_at_gate(pipes, admit=group.add if group is not None else _admit)
        handle = stack.enter_context(contextlib.closing(ProcessHandle(pid)))
        return RunProcess(link, pipes, handle, group=group, policy=policy, holds=stack.pop_all())


def _admit(pid: int) -> None:
    """Without a group the process's own limits, set inside, are all there is."""


class RunProcess:
    """A process at its gate or between two runs; everything it holds goes with `end` or `close`."""

    def __init__(
        self,
        link: ZygoteLink,
        pipes: RunPipes,
        handle: ProcessHandle,
        *,
        group: RunGroup | None,
        policy: RunPolicy,
        holds: contextlib.ExitStack,
    ) -> None:
        self._link = link
        self._pipes = pipes
        self._handle = handle
        self._group = group
        self._policy = policy
        self._holds = holds
        self._is_open = True
        self._has_begun = False

    @property
    def is_alive(self) -> bool:
        return not self._handle.has_ended()

    def run(self, reader: FrameReader, *, seed: int, keeps: bool, should_stop: Callable[[], bool] | None) -> Observed:
        """Start (or continue) a run and supervise it. `keeps`: leave the process alive after complete weights."""
        try:
            watch = RunWatch(
                self._handle,
                frame_fd=self._pipes.frame_fd,
                log_fd=self._pipes.log_fd,
                reader=reader,
                policy=self._policy,
                group=self._group,
                shared_kib=int(self._link.ready.get("anonymous_kib", 0)),
                should_stop=should_stop,
            )
            # What runs here may have closed its end, or may never read what it is sent: its own loss.
            with contextlib.suppress(ConnectionError, BlockingIOError):
                message = json.dumps({"seed": seed}).encode() if self._has_begun else b"go"
                self._pipes.gate.sendall(message)
            self._handle.send(signal.SIGCONT)
            self._has_begun = True
            return watch.watch(keeps=keeps)
        except BaseException:
            self.close()
            raise

    def end(self) -> Mapping[str, Any]:
        """End it if it lives still, and return what the zygote saw of its end."""
        try:
            self._handle.send(signal.SIGKILL)
            return self._link.wait_for_exit(timeout_s=_EXIT_TIMEOUT_S)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of everything; kills what is left."""
        if self._is_open:
            self._is_open = False
            self._handle.send(signal.SIGKILL)
            self._holds.close()
