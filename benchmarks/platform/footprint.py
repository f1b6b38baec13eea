"""Peak memory and disk while an evaluation runs, for a small and a large N: neither may grow with it.

    python -m benchmarks.platform.footprint [--runs 16 128]

A whole embedded instance; its processes and its home folder are measured ten times a second during the evaluation.
"""

import argparse
import json
import os
import tempfile
import threading
from pathlib import Path

from tests.end_to_end.conftest import ONE_STEP, competition_toml, open_instance, wait_for_end
from tests.support.processes import descendants

MIB = 1 << 20


class Peaks:
    """Samples until left: proportional memory of all processes below this one, and bytes in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.memory, self.disk = 0, 0

    def _sample(self) -> None:
        while not self._leave.wait(0.1):
            self.memory = max(self.memory, sum(_memory(pid) for pid, _ in descendants(os.getpid())))
            self.disk = max(self.disk, _size(self._folder))

    def __enter__(self) -> "Peaks":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()


def _memory(pid: int) -> int:
    """Return the process's share of memory in bytes; pages that several processes share are divided among them."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # it ended meanwhile
    return 0


def _size(folder: Path) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(base, name).lstat().st_size
            except OSError:
                continue  # removed meanwhile
    return total


def measure(runs: int) -> dict[str, float]:
    """Evaluate one submission with N = `runs`; return the peaks and what stays on disk of it, MiB."""
    with tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder:
        home = Path(folder) / "home"
        with open_instance(home, toml=competition_toml(n=runs, shard=8)) as instance:
            client = instance.participant("measured")
            path = Path(folder) / "step.py"
            path.write_text(ONE_STEP)
            before = _size(home)
            with Peaks(home) as peaks:
                wait_for_end(client, client.submit("tiny", path), within_s=600)
            return {
                "runs": runs,
                "peak_memory_mib": round(peaks.memory / MIB),
                "peak_disk_above_start_mib": round((peaks.disk - before) / MIB, 2),
            }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, nargs="+", default=[16, 128])
    for runs in parser.parse_args().runs:
        print(json.dumps(measure(runs)), flush=True)


if __name__ == "__main__":
    main()
