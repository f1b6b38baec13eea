"""A Python process that holds what many requests share, and forks for each of them; runs of an entry in it. Linux only.

Requests go as JSON lines to its standard input; answers come as JSON lines on a descriptor that its command names.

It is not a sandbox: a function that runs in it can read the caller's files, use the network and use all memory. The
server's sandbox forbids all of that.
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
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import lethe
from lethe.errors import HostFault
from lethe.submission.entry_point import EntryPoint

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


NO_SANDBOX = (
    "This ran in a child process, not in the server's sandbox: files, network and memory were not limited, and an "
    "entry that needs them can still fail on the server."
)


@dataclass(frozen=True)
class ChildResult:
    """One run's end. weights: a safetensors file's bytes, None where the run failed. fault: `class` and details."""

    weights: bytes | None
    fault: Mapping[str, Any] | None
    wall_time_s: float
    cpu_time_s: float
    peak_memory_mib: float


class ChildRuns(ChildProcess):
    """A child process with the data of `data_dir` in memory, and the entry's files in `code_dir`."""

    def __init__(self, data_dir: Path, code_dir: Path, entry: EntryPoint, *, wall_time_s: float) -> None:
        super().__init__("lethe.evaluation.child_main", data_dir)
        self._code_dir, self._entry, self._wall_time_s = code_dir, entry, wall_time_s

    # As in the sandbox, what an entry writes is not the caller's, nor what it writes for a moment.
    def variables(self) -> dict[str, str]:
        scratch = self.folder / "scratch"
        scratch.mkdir()
        return {"PYTHONPATH": LIBRARY, "TMPDIR": str(scratch)}

    def working_folder(self) -> Path:
        folder = self.folder / "working"
        folder.mkdir()
        return folder

    def run(self, index: int, *, seed: int) -> ChildResult:
        """Run once from the original model. Raises HostFault where the child process cannot work at all."""
        weights, fault = (self.folder / f"{index}.{ending}" for ending in ("safetensors", "json"))
        request = {
            "submission": str(self._code_dir.absolute()),
            "file": self._entry.file,
            "function": self._entry.function,
            "style": self._entry.style,
            "keywords": list(self._entry.keywords),
            "seed": seed,
            "wall_time_s": self._wall_time_s,
            "weights": str(weights),
            "fault": str(fault),
        }
        answer = self.ask(request)
        content = weights.read_bytes() if "fault" not in answer else None
        weights.unlink(missing_ok=True)
        measured = (float(answer[name]) for name in ("wall_time_s", "cpu_time_s", "peak_memory_mib"))
        return ChildResult(content, answer.get("fault"), *measured)
