"""Runs an entry's function in its own child process: a fresh fork for every run, and a limit on its time.

It is not a sandbox: the function can read the caller's files, use the network and use all memory. The
server's sandbox forbids all of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.evaluation.child_process import LIBRARY, ChildProcess
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
