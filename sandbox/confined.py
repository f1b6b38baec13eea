"""A process of the library's own code behind the boundary, for work on a network that is somebody's source code.

It has what the back-end `bubblewrap` gives the sandbox of a run (an empty root, no network, the filter on system calls,
another user than root), a control group around all its processes, and the folders that the work needs, some of them to
write to. What it answers and writes is no more trusted than a run's weights.
"""

import contextlib
import itertools
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sandbox
from sandbox.backends import bubblewrap
from sandbox.cgroups import RunGroup, find_roots, remove_leftovers
from sandbox.environments import own_environment
from sandbox.errors import MachineTooBusy
from sandbox.host_delay import HostDelay, children, tree_usage
from sandbox.host_files import GuestFiles
from sandbox.pidfd import ProcessHandle
from sandbox.policy import RunPolicy
from sandbox.seccomp import build_filter
from sandbox.uid_slots import take_slot

PROCESSES = 64
SCRATCH_MIB = 2048
ANSWER_MIB = 256
TICK_S = 0.5
DISK_EVERY_S = 10.0
SAID_BYTES = 4000
HEADER_BYTES = 16 * 1024 * 1024
LENGTH = struct.Struct(">I")
# Waits until it stands in its control group, and becomes what it was started for. The limit on core dumps is that of
# runs (`guest/isolate.py`), and has to come before the filter.
GATE = """
import os, resource, sys
os.read(0, 1)
core = min(1, resource.getrlimit(resource.RLIMIT_CORE)[1] % 2**64)
resource.setrlimit(resource.RLIMIT_CORE, (core, core))
os.execv(sys.argv[1], sys.argv[2:])
"""
_numbers = itertools.count()


class ConfinedFailed(RuntimeError):
    """The process ended, broke a limit or answered what is not an answer. The message says which."""


@dataclass(frozen=True)
class ConfinedSpec:
    """What a process is started with.

    module: what it runs, of a package that `reads` shows below /opt/lethe. reads: place inside -> what is shown there,
    read-only. writes: the same for folders that it may change; nobody else may touch these before it is closed.
    memory_mib, cpu_time_s: of all its processes. disk_mib: what the folders that it writes to may hold.
    """

    module: str
    reads: Mapping[str, Path]
    writes: Mapping[str, Path] = field(default_factory=dict)
    memory_mib: int = 2048
    cpu_time_s: float = 3600.0
    disk_mib: int = 20_480
    threads: int = 1


@dataclass(frozen=True)
class Answer:
    """One message: plain JSON values, and bytes that belong to it."""

    values: dict[str, Any]
    payloads: tuple[bytes, ...]


class Confined:
    """A started process that answers one request after the other. Not shared between threads."""

    def __init__(self, spec: ConfinedSpec) -> None:
        """Start it. Raises BackendUnavailable."""
        self._spec = spec
        self._environment = own_environment()
        self._said = bytearray()
        self._received = bytearray()
        self._looked_at = time.monotonic()  # at what it wrote
        roots = find_roots()
        remove_leftovers(roots)
        with ExitStack() as stack:
            slot = take_slot()
            if slot is not None:
                stack.callback(slot.release)
            uid = slot.uid if slot is not None else None
            self._files = stack.enter_context(GuestFiles(spec.reads.values(), spec.writes.values(), uid=uid))
            policy = RunPolicy(memory_mib=spec.memory_mib, processes=PROCESSES, threads=spec.threads)
            self._group = RunGroup(roots, policy, name=f"confined-{next(_numbers)}") if roots.version else None
            if self._group is not None:
                stack.callback(self._group.close)
            self._process = self._start(policy, uid)
            stack.callback(self._end)
            self._holds = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it and all that it started, then take back the folders that it wrote to.

        Raises ConfinedFailed if one of them holds anything but files and folders, which are then removed.
        """
        self._holds.close()
        if self._files.removed:
            raise ConfinedFailed(f"it left {self._files.removed[0]}, which is neither a file nor a folder")

    def ask(
        self,
        values: Mapping[str, Any],
        payloads: Sequence[bytes] = (),
        *,
        wall_time_s: float,
        on_wait: Callable[[Mapping[str, Any] | None], None] = lambda _: None,
    ) -> Answer:
        """Send a request and return its answer.

        wall_time_s: without what the machine takes from it (host_delay.py); where that is as much again, raises
        MachineTooBusy. on_wait: called now and then with what it last told of its progress; may raise. Raises
        ConfinedFailed.
        """
        began = time.monotonic()
        self._asked_at, self._wall_time_s, self._cpu_before_s = began, wall_time_s, self._cpu_time_s()
        self._delay = HostDelay(self._process.pid, threads=self._spec.threads, began=began)
        self._send(values, payloads)
        progress: Mapping[str, Any] | None = None
        while True:
            answer = self._take_message()
            if answer is not None and "progress" not in answer.values:
                return answer
            if answer is not None:
                progress = answer.values
                continue
            on_wait(progress)
            self._check_limits()
            self._read()

    def _start(self, policy: RunPolicy, uid: int | None) -> subprocess.Popen[bytes]:
        with ExitStack() as stack:
            bwrap = bubblewrap.find_bwrap()
            binary = bubblewrap.open_path(stack, bwrap)
            arguments = bubblewrap.Arguments(stack, shows=uid is not None)
            self._describe(arguments, policy)
            arguments.add("--seccomp", str(calls := bubblewrap.memory_file(stack, build_filter())))
            listed = bubblewrap.memory_file(stack, arguments.encoded())
            limits = {"memory_mib": self._spec.memory_mib, "cpu_s": int(self._spec.cpu_time_s) + 1}
            limits |= {"processes": PROCESSES, "file_mib": self._spec.disk_mib}
            command = ["bwrap", "--args", str(listed), "--", self._environment.inner_python]
            command += ["-P", "-s", "-S", "-m", self._spec.module, json.dumps(limits)]
            program, environment = f"/proc/self/fd/{binary}", {}
            if uid is not None:
                command = bubblewrap.dropping_root(uid, bwrap, arguments.shown) + command
                package = Path(next(iter(sandbox.__path__)))
                program, environment = sys.executable, {"PYTHONPATH": str(package.parent)}
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", GATE, program, *command],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(binary, listed, calls, *arguments.contents),
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        try:
            if self._group is not None:
                self._group.add(process.pid)
            self._open_gate(process)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    @staticmethod
    def _open_gate(process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None  # noqa: S101 - all three are pipes
            os.set_blocking(pipe.fileno(), False)
        os.write(process.stdin.fileno(), b"g")  # type: ignore[union-attr]

    def _describe(self, arguments: bubblewrap.Arguments, policy: RunPolicy) -> None:
        bubblewrap.describe_empty_root(arguments, policy, self._environment)
        arguments.add("--proc", "/proc", "--size", str(SCRATCH_MIB * 2**20), "--tmpfs", "/scratch")
        arguments.add("--dir", "/tmp")  # noqa: S108 - inside the empty root
        for target, source in self._spec.reads.items():
            arguments.bind(source, target)
        for target, source in self._spec.writes.items():
            arguments.bind(source, target, writable=True)
        arguments.add("--remount-ro", "/")

    def _send(self, values: Mapping[str, Any], payloads: Sequence[bytes]) -> None:
        header = json.dumps({**values, "sizes": [len(payload) for payload in payloads]}).encode()
        for piece in (LENGTH.pack(len(header)) + header, *payloads):
            rest = memoryview(piece)
            while rest:
                self._check_limits()
                rest = rest[self._write(rest) :]

    def _write(self, rest: memoryview) -> int:
        pipe = self._process.stdin
        if pipe is None or not select.select([], [pipe], [], TICK_S)[1]:
            return 0
        try:
            return os.write(pipe.fileno(), rest)
        except BlockingIOError:
            return 0
        except BrokenPipeError as error:
            raise self._failure("it ended") from error

    def _read(self) -> None:
        pipes = [pipe for pipe in (self._process.stdout, self._process.stderr) if pipe is not None]
        readable, _, _ = select.select(pipes, [], [], TICK_S)
        for pipe in readable:
            piece = os.read(pipe.fileno(), 1 << 20)
            if pipe is self._process.stderr:
                self._said = (self._said + piece)[-SAID_BYTES:]
                if not piece:
                    raise self._failure("it ended")
            else:
                self._received += piece
                if not piece:
                    self._drain_said()
                    raise self._failure("it ended")

    def _drain_said(self) -> None:
        """Read its last output, for a moment."""
        until = time.monotonic() + 1.0
        pipe = self._process.stderr
        while pipe is not None and time.monotonic() < until and select.select([pipe], [], [], 0.1)[0]:
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                return
            self._said = (self._said + piece)[-SAID_BYTES:]

    def _take_message(self) -> Answer | None:
        """Return the next message that is here as a whole. Raises ConfinedFailed for one that is too long."""
        if len(self._received) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._received)
        if length > HEADER_BYTES:
            raise self._failure("its answer is not an answer")
        if len(self._received) < LENGTH.size + length:
            return None
        start = LENGTH.size + length
        try:
            values = json.loads(self._received[LENGTH.size : start])
            sizes = [int(size) for size in values.pop("sizes")]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._failure("its answer is not an answer") from error
        if min(sizes, default=0) < 0 or sum(sizes) > ANSWER_MIB * 2**20:
            raise self._failure("its answer is too long")
        if len(self._received) < start + sum(sizes):
            return None
        ends = list(itertools.accumulate(sizes, initial=start))
        payloads = tuple(bytes(self._received[a:b]) for a, b in itertools.pairwise(ends))
        del self._received[: ends[-1]]
        return Answer(values, payloads)

    def _cpu_time_s(self) -> float:
        if self._group is None or not self._group.counts_cpu_time:
            return tree_usage(self._process.pid).cpu_time_s
        return self._group.cpu_time_s()

    def _check_limits(self) -> None:
        spec, now = self._spec, time.monotonic()
        cpu_time_s = self._cpu_time_s()
        if cpu_time_s > spec.cpu_time_s:
            raise self._failure(f"it used more than {spec.cpu_time_s:g} s of processor time")
        counts_memory = self._group is not None and self._group.counts_cpu_time  # the kernel keeps its memory
        if not counts_memory and tree_usage(self._process.pid).memory_kib / 1024 > spec.memory_mib:
            raise self._failure(f"it needs more than {spec.memory_mib} MiB of memory")
        self._delay.look(now, cpu_time_s=cpu_time_s - self._cpu_before_s, every_s=TICK_S)
        if self._delay.waited_s > self._wall_time_s:
            raise MachineTooBusy(f"the machine was too busy: it took {self._delay.waited_s:.0f} s from a process")
        if now - self._asked_at - self._delay.lost_s >= self._wall_time_s and not self._delay.is_kept_waiting:
            raise self._failure("it took too long")
        if now - self._looked_at > DISK_EVERY_S:
            self._looked_at = now
            if self._files.written_mib() > spec.disk_mib:
                raise self._failure(f"it wrote more than {spec.disk_mib} MiB")

    def _failure(self, what: str) -> ConfinedFailed:
        if self._group is not None and self._group.oom_kills() > 0:
            what = f"it needs more than {self._spec.memory_mib} MiB of memory"
        said = self._said.decode(errors="replace").strip()
        return ConfinedFailed(f"{what}: {said}" if said else what)

    def _end(self) -> None:
        """End it. Process 1 inside is a child of bwrap's, and takes all others along."""
        for pid in children(self._process.pid):
            with contextlib.suppress(ProcessLookupError), contextlib.closing(ProcessHandle(pid)) as inside:
                inside.send(signal.SIGKILL)
                inside.wait_for_death()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
