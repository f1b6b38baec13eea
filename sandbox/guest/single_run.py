"""One run in its own container (gVisor): no fork server, since nothing outlives the run.

The request comes on standard input, the frame leaves through what was standard output. The limits of
its processes are the container's own; the filter on its calls is that of every other run.
"""

import base64
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from sandbox.guest import isolate
from sandbox.guest.zygote import FRAME_FD, GATE_FD, preload, run_all, start_afresh

_MAX_LINE = 1024 * 1024


def main() -> None:
    """Read the data, say that all is ready, wait for the word to go, and run."""
    request: dict[str, Any] = json.loads(_read_line(0))
    torch.set_num_threads(1)
    preloaded = preload(Path("/data"))
    _empty(Path(isolate.SCRATCH))  # torch makes a folder for itself when it is loaded
    os.write(1, b"R")
    if os.read(0, 2) != b"go":
        return
    policy = request["policy"]
    nothing = os.open(os.devnull, os.O_RDONLY)
    isolate.keep_only({0: nothing, 1: 2, 2: 2, FRAME_FD: 1, GATE_FD: nothing})
    start_afresh(isolate.SCRATCH)
    isolate.lock_down(base64.b64decode(request["seccomp"]))
    run_all(request, policy, preloaded, Path(isolate.SUBMISSION))


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _read_line(fd: int) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _MAX_LINE:
        if not (byte := os.read(fd, 1)):
            break
        line += byte
    return bytes(line)


if __name__ == "__main__":
    main()
