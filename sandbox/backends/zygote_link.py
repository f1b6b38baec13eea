"""The host's end of one zygote: its process, its control socket, and what it said when it failed."""

import base64
import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any, Protocol

from sandbox.backends.base import RunPipes, StartRequest, View
from sandbox.errors import ZygoteFailed
from sandbox.policy import RunPolicy
from sandbox.seccomp import build_filter

_START_TIMEOUT_S = 180.0
_GATE_TIMEOUT_S = 60.0
_MESSAGE_BYTES = 1024 * 1024
_DIAGNOSTIC_BYTES = 4000
_CREDENTIALS_BYTES = 12


class Starter(Protocol):
    """Starts a zygote; `control` is the guest's end of its socket, `diagnostics` takes its own output."""

    def view(self, request: StartRequest) -> View: ...

    def start(
        self, request: StartRequest, *, control: socket.socket, diagnostics: IO[bytes]
    ) -> subprocess.Popen[bytes]: ...


class ZygoteLink:
    """One running zygote. Not shared between threads."""

    def __init__(self, backend: Starter, request: StartRequest) -> None:
        """Start the zygote and wait until it has read its data."""
        with contextlib.ExitStack() as opened:
            self._diagnostics = opened.enter_context(tempfile.TemporaryFile())
            self._control, guest_end = _control_pair()
            opened.enter_context(self._control)
            with guest_end:
                self._process = backend.start(request, control=guest_end, diagnostics=self._diagnostics)
            opened.pop_all()  # it started: both stay open as long as the zygote lives
        self._token = 0
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended at once; what it said comes with the next line
                self._control.sendall(json.dumps(_config(request.policy, backend.view(request))).encode())
            self.ready = self._receive(_START_TIMEOUT_S)
        except (OSError, ZygoteFailed):
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, message: dict[str, Any]) -> RunPipes:
        """Ask for one run; it waits at its gate until `pass_gate`."""
        self._token += 1
        frame_read, frame_write = os.pipe()
        log_read, log_write = os.pipe()
        gate, guest_gate = _control_pair()
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
        body, ancillary, _flags, _address = self._gate.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS_BYTES))
        message = json.loads(body) if body else {"error": "it ended before its gate"}
        if "error" in message:
            raise ZygoteFailed(f"a run could not be set up: {message['error']} {self.last_words()}".strip())
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid = int.from_bytes(content[:4], "little")
                admit(pid)
                return pid
        raise ZygoteFailed("the kernel gave no credentials with the run's message")

    def wait_for_exit(self, *, timeout_s: float) -> dict[str, Any]:
        """Return what the zygote saw of the run's end, once all its processes are gone."""
        deadline = time.monotonic() + timeout_s
        while True:
            event = self._receive(max(0.0, deadline - time.monotonic()))
            if event.get("event") == "exited" and event.get("token") == self._token:
                return event

    def last_words(self) -> str:
        """The end of what the zygote itself printed."""
        size = self._diagnostics.seek(0, os.SEEK_END)
        self._diagnostics.seek(max(0, size - _DIAGNOSTIC_BYTES))
        return self._diagnostics.read().decode(errors="replace").strip()

    def close(self) -> None:
        """End the zygote, and with it every process below it."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._diagnostics.close()

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        _await(self._control, timeout_s, self)
        try:
            message = self._control.recv(_MESSAGE_BYTES)
        except ConnectionResetError:  # it ended with our message unread
            message = b""
        if not message:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
            raise ZygoteFailed(f"the zygote ended with {self._process.poll()}: {self.last_words()}")
        event = json.loads(message)
        return event if isinstance(event, dict) else {}


def _control_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


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
    """Let a pipe hold a megabyte, where the user's quota for pipes allows it."""

    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 1024 * 1024)
