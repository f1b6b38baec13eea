"""How fast frames of weights come through a pipe and the checks of the trusted side, beside the pipe alone."""

import contextlib
import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lethe.runtime.weights_layout import WeightsLayout, read_layout
from sandbox.frame_reader import FrameReader, find_problem
from sandbox.guest.frame_format import WEIGHTS_TAG

_READ_BYTES = 1 << 20  # as the launcher reads
Take = Callable[[int, WeightsLayout], None]


def frame_rates(model: Path, *, frames: int) -> tuple[float, float]:
    """Return MiB a second of the best frame: bytes taken from the pipe and dropped, and read and checked as a run's.

    model: a safetensors file; another process writes it again and again.
    """
    content = model.read_bytes()
    layout = read_layout(content)
    with tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder:
        frame = Path(folder) / "frame"
        frame.write_bytes(WEIGHTS_TAG + content)
        bare, checked = (_best_s(frame, layout, take, frames=frames) for take in (_drop, _check))
    mib = len(content) / 2**20
    return mib / bare, mib / checked


def _best_s(frame: Path, layout: WeightsLayout, take: Take, *, frames: int) -> float:
    with subprocess.Popen(["cat", *[str(frame)] * frames], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        fd = writer.stdout.fileno()
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _READ_BYTES)  # as the launcher widens it
        return min(_timed(take, fd, layout) for _ in range(frames))


def _timed(take: Take, fd: int, layout: WeightsLayout) -> float:
    began = time.perf_counter()
    take(fd, layout)
    return time.perf_counter() - began


def _drop(fd: int, layout: WeightsLayout) -> None:
    left = len(WEIGHTS_TAG) + layout.frame_bytes
    while left:
        left -= len(os.read(fd, min(_READ_BYTES, left)))


def _check(fd: int, layout: WeightsLayout) -> None:
    reader = FrameReader(layout)
    while not reader.is_over:
        reader.feed(os.read(fd, min(_READ_BYTES, reader.wanted_bytes)))
    if find_problem(reader.weights(), layout, max_abs_weight=1e9) is not None:
        raise RuntimeError("the original model's weights were not taken")
