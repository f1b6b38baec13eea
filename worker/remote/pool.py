"""The main process of a remote worker: starts its processes again when they die, drains them, never loads torch."""

import ctypes
import multiprocessing
import os
import secrets
import signal
import socket
import time
from multiprocessing.context import ForkProcess
from types import FrameType
from typing import Self

import structlog
from pydantic import SecretStr, model_validator

from lethe.errors import InvalidInput
from server.config import Settings
from worker.host import graceful_shutdown
from worker.host.worker_info import find_gpu

log = structlog.get_logger()
PR_SET_PDEATHSIG = 1
REFUSED = 4  # as in worker.remote.loop, which loads torch
POLL_INTERVAL_S = 0.2
START_AGAIN_AFTER_S = 5.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)
TOKEN_VARIABLE = "LETHE_WORKER_TOKEN"  # noqa: S105 (the variable's name)


class Pool:
    """Processes that each run one shard at a time."""

    def __init__(self, settings: Settings, url: str, token: str) -> None:
        self._settings, self._url, self._token = settings, url, token
        self._processes: dict[int, ForkProcess] = {}
        self._start_at = dict.fromkeys(range(settings.worker_concurrency), 0.0)
        self._refused = False

    def run(self) -> int:
        """Serve until a signal drains the worker or the server refuses it. Return the exit status."""
        previous = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            while self._processes or not graceful_shutdown.is_asked():
                self._look()
                time.sleep(POLL_INTERVAL_S)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        return 1 if self._refused else 0

    def _look(self) -> None:
        for slot, process in list(self._processes.items()):
            if process.is_alive():
                continue
            process.join()
            del self._processes[slot]
            self._ended(slot, process.exitcode or 0)
        for slot, moment in self._start_at.items():
            if slot not in self._processes and not graceful_shutdown.is_asked() and time.monotonic() >= moment:
                self._processes[slot] = self._start(slot)

    def _ended(self, slot: int, exitcode: int) -> None:
        if exitcode == REFUSED:
            self._refused = True
            graceful_shutdown.begin(give_back_after_s=0.0)
        elif not graceful_shutdown.is_asked():
            log.error("process ended, starting another", slot=slot, exitcode=exitcode)
            self._start_at[slot] = time.monotonic() + START_AGAIN_AFTER_S

    def _start(self, slot: int) -> ForkProcess:
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(self._settings, self._url, self._token, slot), name=f"lethe-worker-{slot}"
        )
        process.start()
        return process

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        again = graceful_shutdown.is_asked()
        graceful_shutdown.begin(give_back_after_s=0.0 if again else self._settings.worker_drain_s)


def worker_name() -> str:
    """Return a name for this process that no other has had: host, process id and chance."""
    host = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in socket.gethostname())
    return f"{host[:50].lstrip('._-') or 'host'}-{os.getpid()}-{secrets.token_hex(4)}"


def _serve(settings: Settings, url: str, token: str, slot: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the main process tells of a stop through shared memory
    if settings.worker_device == "cuda":
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the device files are numbered
        os.environ["CUDA_VISIBLE_DEVICES"] = find_gpu(settings, slot=slot)
    from worker.remote.loop import serve_process  # noqa: PLC0415 (loads torch, in this process alone)

    raise SystemExit(serve_process(settings, url, token, name=worker_name()))


class RemoteSettings(Settings):
    """The same settings; production asks for a real sandbox, but for none of an instance's own services."""

    @model_validator(mode="after")
    def _production_has_no_defaults(self) -> Self:
        if self.environment == "production" and self.sandbox_backend == "plain":
            raise ValueError("LETHE_SANDBOX_BACKEND=plain confines nothing and is refused in production")
        return self


def take_token() -> SecretStr:
    """Return the token, and take it out of the environment that other processes inherit. Raises InvalidInput."""
    token = os.environ.pop(TOKEN_VARIABLE, "").strip()
    if not token:
        raise InvalidInput(
            "No worker token is set. An organiser creates one with `lethe api POST /competitions/NAME/worker-tokens -f "
            f"name=MACHINE`; put it into the environment as {TOKEN_VARIABLE}, not among the arguments, where other "
            "users of the host could read it."
        )
    return SecretStr(token)
