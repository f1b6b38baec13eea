"""What happens on the machine beside the tests."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def all_cores_busy() -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


@contextmanager
def memory_taken() -> Iterator[list[float]]:
    """Yield a list that gets what the machine's free memory has fallen by, in GiB, each half second."""
    before, taken, ended = _available_gib(), [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            taken.append(before - _available_gib())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join()


def _available_gib() -> float:
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found[1]) / (1 << 20) if found else 0.0
