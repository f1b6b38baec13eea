"""Watches one run from outside: takes its frame and its log as they come, holds the clocks, ends it.

Every wait is bounded and every read takes no more than is wanted, so a run that dribbles, floods,
closes its pipes or does nothing can hold neither the worker's time nor its memory.
"""

import os
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from sandbox.cgroups import GroupUsage, RunGroup
from sandbox.frame_reader import FrameReader, FrameState
from sandbox.host_delay import HostDelay, tree_usage
from sandbox.pidfd import ProcessHandle
from sandbox.policy import RunPolicy
from sandbox.verdict import KillReason

_READ_BYTES = 1024 * 1024
_TICK_S = 0.1
_CLOSED_FRAME_GRACE_S = 0.25
_IDLE_CPU_SHARE = 0.01  # less than this share of one processor is doing nothing
_STRETCHED = 2.0  # as much of the limit of wall time may the machine take before the run is repeated elsewhere


@dataclass(frozen=True)
class Observed:
    """What the watch saw. wall_time_s: by the clock, without what the machine took from the run."""

    kill_reason: KillReason | None
    wall_time_s: float
    log: bytes
    usage: GroupUsage
    is_kept: bool = False  # the process lives still, for its next run


class RunWatch:
    """Supervises one run, from the time its code may start until its last process is gone."""

    def __init__(
        self,
        process: ProcessHandle,
        *,
        frame_fd: int,
        log_fd: int,
        reader: FrameReader,
        policy: RunPolicy,
        group: RunGroup | None,
        shared_kib: int = 0,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self._process = process
        self._frame_fd, self._log_fd = frame_fd, log_fd
        self._reader = reader
        self._policy = policy
        self._group = group
        self._shared_kib = shared_kib
        self._should_stop = should_stop
        self._log = bytearray()
        self._sampled = GroupUsage()
        self._frame_open = self._log_open = True
        self._closed_at: float | None = None
        self._clock = _Clock(policy, process.pid)
        self._cpu_before_s = 0.0  # what the process used before this run
        self._cpu_before_s = self._sample().cpu_time_s
        os.set_blocking(frame_fd, False)
        os.set_blocking(log_fd, False)

    def watch(self, *, keeps: bool = False) -> Observed:
        """Watch until the run has sent all it will, has ended or has used up a limit; then end it.

        keeps: a process that has sent whole weights is stopped instead, for its next run.
        """
        reason: KillReason | None = None
        is_kept = False
        self._clock.begin(time.monotonic())
        try:
            reason = self._pump()
            ended = time.monotonic()
            is_kept = keeps and self._reader.state is FrameState.WEIGHTS and not self._process.has_ended()
            wall_time_s = self._clock.end(ended, self._sample().cpu_time_s)
        finally:
            self._process.send(signal.SIGSTOP if is_kept else signal.SIGKILL)
        if not is_kept:
            self._process.wait_for_death()
        self._drain()
        if reason is None and self._log_is_full():
            reason = KillReason.LOG
        return Observed(
            kill_reason=reason,
            wall_time_s=wall_time_s,
            log=bytes(self._log[: self._policy.log_kib * 1024]),
            usage=self._measure(),
            is_kept=is_kept,
        )

    def _pump(self) -> KillReason | None:
        """Move bytes until something ends the run; None where it ended by itself or sent a complete frame."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.fd, selectors.EVENT_READ)
            selector.register(self._frame_fd, selectors.EVENT_READ)
            selector.register(self._log_fd, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(_TICK_S):
                    if key.fd == self._process.fd:
                        return None
                    if self._take(key.fd) == b"":
                        selector.unregister(key.fd)
                if self._reader.is_over:
                    return None
                now = time.monotonic()
                if reason := self._exceeded(now):
                    return reason

    def _exceeded(self, now: float) -> KillReason | None:
        if self._log_is_full():
            return KillReason.LOG
        is_late = self._closed_at is not None and now - self._closed_at > _CLOSED_FRAME_GRACE_S
        if is_late and not self._process.is_ending():  # on a busy machine an end takes longer than the grace
            return KillReason.CLOSED_FRAME
        if not self._clock.is_due(now):
            return None
        if self._should_stop is not None and self._should_stop():
            return KillReason.STOPPED
        self._sampled = self._sample()
        if self._has_too_much_memory():
            return KillReason.MEMORY
        reason = self._clock.exceeded(now, self._sampled.cpu_time_s)
        if self._clock.is_stopped:
            self._process.send(signal.SIGCONT)  # whoever stopped it: it would only wait for its end
        return reason

    def _take(self, fd: int) -> bytes | None:
        """Read once: bytes, none where the pipe is closed on the other side, or None where there are none now."""
        wanted = self._reader.wanted_bytes if fd == self._frame_fd else self._log_room()
        try:
            chunk = os.read(fd, min(_READ_BYTES, max(1, wanted)))
        except BlockingIOError:
            return None
        if fd == self._frame_fd:
            self._reader.feed(chunk)
            self._closed_at = time.monotonic() if not chunk else None
            self._frame_open = bool(chunk)
        else:
            self._log += chunk
            self._log_open = bool(chunk)
        return chunk

    def _drain(self) -> None:
        """Read what is left in the pipes when the run ended; with every writer dead this cannot go on for ever."""
        while self._frame_open and not self._reader.is_over and self._take(self._frame_fd):
            pass
        while self._log_open and not self._log_is_full() and self._take(self._log_fd):
            pass

    def _log_room(self) -> int:
        return self._policy.log_kib * 1024 + 1 - len(self._log)

    def _log_is_full(self) -> bool:
        return self._log_room() <= 0

    def _has_too_much_memory(self) -> bool:
        """Whether the kernel had to kill one of its processes; without a group, whether it ought to have."""
        if self._group is not None:
            return self._sampled.oom_kills > 0
        return self._sampled.peak_memory_mib > self._policy.memory_mib

    def _sample(self) -> GroupUsage:
        if self._group is not None and self._group.counts_cpu_time:
            cpu_time_s = self._group.cpu_time_s() - self._cpu_before_s
            return GroupUsage(cpu_time_s=cpu_time_s, oom_kills=self._group.oom_kills())
        tree = tree_usage(self._process.pid, shared_kib=self._shared_kib)
        return GroupUsage(
            cpu_time_s=max(tree.cpu_time_s - self._cpu_before_s, self._sampled.cpu_time_s),
            peak_memory_mib=max(tree.memory_kib / 1024, self._sampled.peak_memory_mib),
        )

    def _measure(self) -> GroupUsage:
        if self._group is None:
            return self._sampled
        usage = self._group.usage()
        return replace(usage, cpu_time_s=usage.cpu_time_s - self._cpu_before_s)


class _Clock:
    """The run's wall, idle and processor time. What the machine takes from it (host_delay.py) is given back.

    Where that is more than the run may take altogether, the run ends as the host's: another machine repeats it.
    """

    def __init__(self, policy: RunPolicy, pid: int) -> None:
        self._policy, self._pid = policy, pid
        self._active_at = self._active_cpu_s = 0.0

    def begin(self, now: float) -> None:
        self._began = self._looked_at = now
        self._delay = HostDelay(self._pid, threads=self._policy.threads, began=now)

    def is_due(self, now: float) -> bool:
        """Return whether a tick has passed."""
        return now - self._looked_at >= _TICK_S

    @property
    def is_stopped(self) -> bool:
        return self._delay.is_stopped

    def end(self, now: float, cpu_time_s: float) -> float:
        """Return how long the run took by the clock, without what the machine took from it."""
        self._delay.look(now, cpu_time_s=cpu_time_s, every_s=_TICK_S)
        return self._own_time_s(now)

    def _own_time_s(self, now: float) -> float:
        return now - self._began - self._delay.lost_s

    def exceeded(self, now: float, cpu_time_s: float) -> KillReason | None:
        self._looked_at = now
        self._delay.look(now, cpu_time_s=cpu_time_s, every_s=_TICK_S)
        if cpu_time_s > self._policy.cpu_allowance_s:
            return KillReason.CPU_TIME
        if self._delay.waited_s > _STRETCHED * self._policy.wall_time_s:
            return KillReason.STARVED
        own_s = self._own_time_s(now)
        if self._delay.is_kept_waiting:  # how long, the kernel says when it runs again
            return KillReason.STARVED if own_s > (1 + _STRETCHED) * self._policy.wall_time_s else None
        if own_s >= self._policy.wall_time_s:
            return KillReason.WALL_TIME
        if cpu_time_s - self._active_cpu_s > _IDLE_CPU_SHARE * max(0.5, own_s - self._active_at):
            self._active_at, self._active_cpu_s = own_s, cpu_time_s
        if self._policy.idle_time_s is not None and own_s - self._active_at >= self._policy.idle_time_s:
            return KillReason.IDLE_TIME
        return None
