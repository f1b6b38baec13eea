"""The host's end of one zygote: its process, its control socket, and what it said when it failed."""

import base64
import contextlib
import fcntl
import json
import os
import secrets
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.backends import templates
from sandbox.backends.base import RunPipes, View
from sandbox.backends.templates import StartProcess, Template, control_pair
from sandbox.errors import RunWillNotDie, ZygoteFailed
from sandbox.pidfd import ProcessHandle
from sandbox.policy import RunPolicy
from sandbox.seccomp import build_filter
from sandbox.uid_slots import take_slot

_GATE_TIMEOUT_S = 60.0
_MESSAGE_BYTES = 1024 * 1024
_CREDENTIALS_BYTES = 12


def connect(
    start: StartProcess,
    *,
    key: object,
    policy: RunPolicy,
    view: View,
    late_mounts: Mapping[str, int] | None = None,
    drops_root: bool = False,
    slot_number: int | None = None,
) -> "ZygoteLink":
    """Return a new zygote: from this thread's waiting template if that was started just so, else from a new one.

    key: all that the template's start depends on. late_mounts: place inside -> descriptor of what is mounted there for
    this zygote alone. drops_root: root becomes a slot's user. Raises ZygoteFailed.
    """
    key = (key, templates.inherited())
    waiting = templates.take(key, slot_number=slot_number)
    if waiting is not None:
        with contextlib.suppress(ZygoteFailed, OSError):
            return ZygoteLink(waiting, policy, view, late_mounts or {})
    slot = take_slot(slot_number) if drops_root else None
    return ZygoteLink(Template(start, key=key, slot=slot), policy, view, late_mounts or {})


class ZygoteLink:
    """One running zygote. Not shared between threads."""

    def __init__(self, template: Template, policy: RunPolicy, view: View, late_mounts: Mapping[str, int]) -> None:
        """Fork a zygote from the template and wait until it has read its data. Takes ownership of the template."""
        self._template = template
        self._process: ProcessHandle | None = None
        self._token = ""
        self._is_open = True
        self._diagnostics = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the zygote lives
        self._control, guest_end = control_pair()
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            with guest_end:
                config = {**_config(policy, view), "late_mounts": list(late_mounts)}
                template.fork(config, [guest_end.fileno(), self._diagnostics.fileno(), *late_mounts.values()])
            _await(self._control, templates.START_TIMEOUT_S, self)
            self.ready, pid = self._receive_with_pid(self._control)
            self._process = ProcessHandle(pid)
        except BaseException:
            self.close()
            raise

    @property
    def uid(self) -> int | None:
        """The user that root dropped to."""
        return self._template.slot.uid if self._template.slot is not None else None

    @property
    def is_alive(self) -> bool:
        return self._template.is_alive and self._process is not None and not self._process.has_ended()

    def fork(self, message: dict[str, Any]) -> RunPipes:
        """Ask for one run; it waits at its gate until `pass_gate`."""
        self._token = secrets.token_hex(8)
        frame_read, frame_write = os.pipe()
        log_read, log_write = os.pipe()
        gate, guest_gate = control_pair()
        self._gate = gate
        gate.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        gate.setblocking(False)  # a run that never reads its messages must not hold the worker up
        pipes = RunPipes(frame_fd=frame_read, log_fd=log_read, gate=gate)
        _widen(frame_read)
        try:
            body = json.dumps({**message, "token": self._token}).encode()
            socket.send_fds(self._control, [body], [frame_write, log_write, guest_gate.fileno()])
        except OSError as error:
            pipes.close()
            raise ZygoteFailed(f"the zygote is gone: {self.last_words()}") from error
        finally:
            os.close(frame_write)
            os.close(log_write)
            guest_gate.close()
        return pipes

    def wait_at_gate(self, pipes: RunPipes, *, admit: Callable[[int], None]) -> int:
        """Return the run's process id as the host's kernel vouches for it."""
        _await(self._gate, _GATE_TIMEOUT_S, self)
        message, pid = self._receive_with_pid(self._gate, sender="the run")
        if "error" in message:
            raise ZygoteFailed(f"a run could not be set up: {message['error']} {self.last_words()}".strip())
        admit(pid)
        return pid

    def wait_for_exit(self, *, timeout_s: float) -> dict[str, Any]:
        """Return what the zygote saw of the run's end, once all its processes are gone."""
        deadline = time.monotonic() + timeout_s
        while True:
            event = self._receive(max(0.0, deadline - time.monotonic()))
            if event.get("event") == "exited" and event.get("token") == self._token:
                return event

    def last_words(self) -> str:
        """The end of what the zygote itself printed."""
        return templates.last_words(self._diagnostics)

    def close(self, *, keeps_template: bool = False) -> None:
        """End the zygote, and with it every process below it. A zygote that will not die ends with its template.

        keeps_template: this thread's next zygote may be forked from the same template.
        """
        if not self._is_open:
            return
        self._is_open = False
        self._control.close()
        has_ended = False
        if self._process is not None:
            self._process.send(signal.SIGKILL)
            with contextlib.suppress(RunWillNotDie):
                self._process.wait_for_death()
                has_ended = True
            self._process.close()
            self._process = None
        self._diagnostics.close()
        if keeps_template and has_ended:
            templates.put_back(self._template)
        else:
            self._template.close()

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        _await(self._control, timeout_s, self)
        return self._receive_with_pid(self._control)[0]

    def _receive_with_pid(self, channel: socket.socket, *, sender: str = "the zygote") -> tuple[dict[str, Any], int]:
        """Return the next message, and its sender's process id as the host's kernel vouches for it."""
        try:
            body, ancillary, _flags, _address = channel.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(_CREDENTIALS_BYTES))
        except ConnectionResetError:  # it ended with our message unread
            body = b""
        if not body:
            raise ZygoteFailed(f"{sender} ended: {self.last_words()}")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                message = json.loads(body)
                return message if isinstance(message, dict) else {}, int.from_bytes(content[:4], "little")
        raise ZygoteFailed("the kernel gave no credentials with the guest's message")


def _await(channel: socket.socket, timeout_s: float, link: ZygoteLink) -> None:
    readable, _, _ = select.select([channel], [], [], timeout_s)
    if not readable:
        raise ZygoteFailed(f"the zygote said nothing for {timeout_s:g} s: {link.last_words()}")


def _config(policy: RunPolicy, view: View) -> dict[str, Any]:
    filtered = build_filter(accelerator=bool(policy.devices)) if view.isolates_runs else b""
    return {
        "data": view.data,
        "stage": view.stage,
        "scratch": view.scratch,
        "isolate": view.isolates_runs,
        "seccomp": base64.b64encode(filtered).decode(),
        "policy": {**policy.to_dict(), "process_cpu_s": policy.process_cpu_s},
    }


def _widen(fd: int) -> None:
    """Enlarge a pipe to a megabyte, where the user's quota for pipes allows it."""

    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 1024 * 1024)
