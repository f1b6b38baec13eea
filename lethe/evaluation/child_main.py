"""The child process of `child_runs`: loads data and network once, then forks for every run. Linux only.

Requests come as JSON lines on standard input, answers go as JSON lines to the descriptor that the command names.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # an optimiser's first step imports it, which takes a second in each fork

from lethe.networks.builders import build
from lethe.runtime.data_loaders import load_data
from lethe.runtime.entry import Preloaded, RunFault, Task, describe, unlearned_weights
from lethe.runtime.weights_layout import ORIGINAL_MODEL, read_layout

POLL_S = 0.01


def main(data_dir: Path, answers_fd: int) -> None:
    """Serve requests until standard input ends."""
    torch.set_num_threads(1)
    data = load_data(data_dir)
    network = build(data.network)
    network.load_state_dict(data.original_state)
    layout = read_layout((data_dir / ORIGINAL_MODEL).read_bytes())
    preloaded = Preloaded(data=data, network=network, layout=layout)
    for line in sys.stdin:
        answer = _run(json.loads(line), preloaded)
        os.write(answers_fd, json.dumps(answer).encode() + b"\n")


def _run(request: Mapping[str, Any], preloaded: Preloaded) -> dict[str, Any]:
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(_work(request, preloaded))
    status, memory_mib = _wait(child, until=started + float(request["wall_time_s"]))
    answer = {"wall_time_s": time.monotonic() - started, "peak_memory_mib": memory_mib}
    if status is None:
        return answer | {"fault": {"class": "timeout"}}
    fault = Path(request["fault"])
    if fault.is_file():
        return answer | {"fault": json.loads(fault.read_text(encoding="utf-8"))}
    return answer if status == 0 else answer | {"fault": {"class": "no-weights", "status": status}}


def _wait(child: int, *, until: float) -> tuple[int | None, float]:
    """Return the child's exit status and peak memory in MiB; None where its time was over and it was killed."""
    while time.monotonic() < until:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024
        time.sleep(POLL_S)
    os.kill(child, signal.SIGKILL)
    _pid, _status, usage = os.wait4(child, 0)
    return None, usage.ru_maxrss / 1024


def _work(request: Mapping[str, Any], preloaded: Preloaded) -> int:
    task = Task(
        submission=Path(request["submission"]),
        file=request["file"],
        function=request["function"],
        style=request["style"],
        keywords=tuple(request["keywords"]),
        run=request["run"],
        seed=request["seed"],
        threads=1,
        device="cpu",
    )
    try:
        pieces = unlearned_weights(task, preloaded)
        Path(request["weights"]).write_bytes(b"".join([preloaded.layout.header, *pieces]))
    except BaseException as error:
        if not isinstance(error, RunFault):
            traceback.print_exception(error, limit=-60 if isinstance(error, RecursionError) else None)
        Path(request["fault"]).write_text(json.dumps(describe(error, task)), encoding="utf-8")
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
