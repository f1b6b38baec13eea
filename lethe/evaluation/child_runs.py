"""Runs an entry's function in its own child process: a fresh fork for every run, and a limit on its time.

It is not a sandbox: the function can read the caller's files, use the network and use all memory. The
server's sandbox forbids all of that.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import lethe
from lethe.errors import HostFault
from lethe.submission.entry_point import EntryPoint

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
    peak_memory_mib: float


class ChildRuns:
    """A child process with the data of `data_dir` in memory, and the entry's files in `code_dir`."""

    def __init__(self, data_dir: Path, code_dir: Path, entry: EntryPoint, *, wall_time_s: float) -> None:
        self._data_dir, self._code_dir, self._entry = data_dir, code_dir, entry
        self._wall_time_s = wall_time_s

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="lethe-runs-")
        self._log = (Path(self._folder.name) / "log").open("w+b")
        # As in the sandbox, what an entry writes is not the caller's, nor what it writes for a moment.
        working, scratch = (Path(self._folder.name) / name for name in ("working", "scratch"))
        working.mkdir()
        scratch.mkdir()
        read_fd, write_fd = os.pipe()
        root = str(Path(lethe.__file__).resolve().parents[1])
        environment = os.environ | {"PYTHONPATH": root, "PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch)}
        words = ["-m", "lethe.evaluation.child_main", str(self._data_dir.absolute()), str(write_fd)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", *words],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=environment,
            cwd=working,
            pass_fds=(write_fd,),
        )
        os.close(write_fd)
        self._requests = cast(IO[bytes], self._process.stdin)
        self._answers = os.fdopen(read_fd, encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._process.kill()
        self._process.wait()
        self._answers.close()
        self._log.close()
        self._folder.cleanup()

    def run(self, index: int, *, seed: int) -> ChildResult:
        """Run once from the original model. Raises HostFault where the child process cannot work at all."""
        folder = Path(self._folder.name)
        weights, fault = folder / f"{index}.safetensors", folder / f"{index}.json"
        request = {
            "submission": str(self._code_dir.absolute()),
            "file": self._entry.file,
            "function": self._entry.function,
            "style": self._entry.style,
            "keywords": list(self._entry.keywords),
            "run": index,
            "seed": seed,
            "wall_time_s": self._wall_time_s,
            "weights": str(weights),
            "fault": str(fault),
        }
        answer = self._ask(request)
        content = weights.read_bytes() if "fault" not in answer else None
        weights.unlink(missing_ok=True)
        return ChildResult(content, answer.get("fault"), answer["wall_time_s"], answer["peak_memory_mib"])

    def log(self) -> str:
        """Return what the runs printed so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            line = self._answers.readline()
        if not line:
            raise HostFault(f"the child process for runs ended: {self.log()[-2000:] or 'it said nothing'}")
        answer: dict[str, Any] = json.loads(line)
        return answer
