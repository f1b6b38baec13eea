"""A Python process that holds what many requests share, and forks for each of them. Linux only.

Requests go as JSON lines to its standard input; answers come as JSON lines on a descriptor that its command names.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import lethe
from lethe.errors import HostFault

POLL_S = 0.005
LIBRARY = str(Path(lethe.__file__).resolve().parents[1])


class ChildProcess:
    """`python -m MODULE DATA DESCRIPTOR`, until the block ends. folder: its own, removed with it."""

    folder: Path
    lost = False  # it did not answer, and will not

    def __init__(self, module: str, data: Path) -> None:
        self._module, self._data = module, data

    def __enter__(self) -> Self:
        self._temporary = tempfile.TemporaryDirectory(prefix="lethe-runs-")
        self.folder = Path(self._temporary.name)
        self._log = (self.folder / "log").open("w+b")
        read_fd, write_fd = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", self._module, str(self._data.absolute()), str(write_fd)],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | self.variables(),
            cwd=self.working_folder(),
            pass_fds=(write_fd,),
        )
        os.close(write_fd)
        self._requests = cast(IO[bytes], self._process.stdin)
        self._answers = os.fdopen(read_fd, encoding="utf-8")
        return self

    def variables(self) -> dict[str, str]:
        """Return what its environment has beside the caller's."""
        return {"PYTHONPATH": os.pathsep.join(filter(None, (LIBRARY, os.environ.get("PYTHONPATH"))))}

    def working_folder(self) -> Path | None:
        """Return the folder it works in; None: the caller's."""
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._process.kill()
        self._process.wait()
        self._answers.close()
        self._log.close()
        self._temporary.cleanup()

    def log(self) -> str:
        """Return what was printed so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises HostFault where the process is lost."""
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            line = self._answers.readline()
        if not line:
            self.lost = True
            said = self.log().strip()[-2000:] or "it said nothing"
            raise HostFault(f"the child process that runs on {self._data} ended: {said}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def answer_requests(answers_fd: int, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """In the child process: serve requests until standard input ends."""
    for line in sys.stdin:
        os.write(answers_fd, json.dumps(answer(json.loads(line))).encode() + b"\n")


def run_forked(work: Callable[[], int], *, limit_s: float | None) -> dict[str, Any]:
    """Run `work` in a fork. Return its exit `status`, None where its time was over, its times and peak memory."""
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        status = 1
        try:
            status = work()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    pid, status, usage = os.wait4(child, os.WNOHANG)
    while not pid and (limit_s is None or time.monotonic() - started < limit_s):
        time.sleep(POLL_S)
        pid, status, usage = os.wait4(child, os.WNOHANG)
    if not pid:
        os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
    return {
        "status": os.waitstatus_to_exitcode(status) if pid else None,
        "wall_time_s": time.monotonic() - started,
        "cpu_time_s": usage.ru_utime + usage.ru_stime,
        "peak_memory_mib": usage.ru_maxrss / 1024,
    }
