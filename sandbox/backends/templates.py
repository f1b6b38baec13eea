"""The host's end of template processes: one for each living sandbox, and one that waits for this thread's next.

A template serves one sandbox at a time and keeps its user, so no two living sandboxes share one. It serves only
sandboxes that would be started exactly as it was. It ends with the thread that started it, as bubblewrap does, so it
is never given to another.
"""

import contextlib
import json
import os
import resource
import select
import socket
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from sandbox.errors import ZygoteFailed
from sandbox.uid_slots import Slot

START_TIMEOUT_S = 180.0
_MESSAGE_BYTES = 1024 * 1024
_DIAGNOSTIC_BYTES = 4000
StartProcess = Callable[[Slot | None, socket.socket, IO[bytes]], subprocess.Popen[bytes]]


class _Waiting(threading.local):
    """This thread's template that serves nobody; a forked process has its parent's, and must not touch it."""

    template: "Template | None" = None


_waiting = _Waiting()


class Template:
    """A running template and the slot of its user. key: all that it was started with."""

    def __init__(self, start: StartProcess, *, key: object, slot: Slot | None) -> None:
        """Start it and wait until it has loaded its libraries; takes the slot over. Raises ZygoteFailed."""
        self.key, self.slot = key, slot
        self._owner = os.getpid()
        self._thread = threading.current_thread()  # its end is the template's
        end = contextlib.ExitStack()
        self._end = weakref.finalize(self, _end_own, self._owner, end)
        if slot is not None:
            end.callback(slot.release)
        try:
            self._diagnostics: IO[bytes] = end.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            self._control, guest_end = control_pair()
        except BaseException:
            self.close()
            raise
        end.callback(self._control.close)
        try:
            with guest_end:
                self._process = start(slot, guest_end, self._diagnostics)
            end.callback(_kill, self._process)
            self._await_ready()
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    @property
    def is_this_threads(self) -> bool:
        return self._thread is threading.current_thread()

    def fork(self, config: dict[str, Any], fds: Sequence[int]) -> None:
        """Ask for a zygote, which gets these descriptors. Raises ZygoteFailed."""
        try:
            socket.send_fds(self._control, [json.dumps(config).encode()], list(fds))
        except OSError as error:
            raise ZygoteFailed(f"the template is gone: {last_words(self._diagnostics)}") from error

    def close(self) -> None:
        """End it, and with it every process below it; give its slot back."""
        self._end()

    def _await_ready(self) -> None:
        readable, _, _ = select.select([self._control], [], [], START_TIMEOUT_S)
        if not readable:
            raise ZygoteFailed(f"the template said nothing for {START_TIMEOUT_S:g} s: {last_words(self._diagnostics)}")
        if not self._control.recv(_MESSAGE_BYTES):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
            code = self._process.poll()
            raise ZygoteFailed(f"the template ended with {code}: {last_words(self._diagnostics)}")


def take(key: object, *, slot_number: int | None) -> Template | None:
    """Return this thread's waiting template if it was started just so, None otherwise."""
    template, _waiting.template = _waiting.template, None
    if template is None:
        return None
    has_slot = slot_number is None or (template.slot is not None and template.slot.number == slot_number)
    if template.is_alive and template.key == key and has_slot:
        return template
    template.close()
    return None


def put_back(template: Template) -> None:
    """Keep a living template for this thread's next sandbox, replacing the kept one; else end it."""
    if not (template.is_alive and template.is_this_threads):
        template.close()
        return
    before, _waiting.template = _waiting.template, template
    if before is not None:
        before.close()


def inherited() -> tuple[object, ...]:
    """Return what a process that is started now inherits from this one."""
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    limits = tuple(resource.getrlimit(getattr(resource, name)) for name in names)
    groups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    status = Path("/proc/thread-self/status").read_text(encoding="utf-8").splitlines()
    masks = tuple(line for line in status if line.startswith(("Umask:", "SigBlk:", "SigIgn:")))
    affinity = tuple(sorted(os.sched_getaffinity(0)))
    return (limits, groups, masks, affinity, os.getpriority(os.PRIO_PROCESS, 0))


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a channel that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def last_words(diagnostics: IO[bytes]) -> str:
    """Return the end of what a guest's process printed."""
    size = diagnostics.seek(0, os.SEEK_END)
    diagnostics.seek(max(0, size - _DIAGNOSTIC_BYTES))
    return diagnostics.read().decode(errors="replace").strip()


def _end_own(owner: int, end: contextlib.ExitStack) -> None:
    if os.getpid() == owner:  # a fork of the owner has copies of all this, and the owner still needs it
        end.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
