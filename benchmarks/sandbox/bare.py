"""The measured submissions in this very process: what the sandbox is compared with.

python -m benchmarks.sandbox.bare DATA_DIR STAGE_DIR RUNS    (0 runs: one, and no figures)
"""

import argparse
import contextlib
import copy
import io
import json
import time
from pathlib import Path

import torch

from lethe.runtime.entry import Preloaded, Task, unlearned_weights
from sandbox.guest.zygote import preload


def main() -> None:
    """Run and print the best times, seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("stage", type=Path)
    parser.add_argument("runs", type=int)
    given = parser.parse_args()
    data_dir, stage, runs = given.data_dir, given.stage, given.runs
    torch.set_num_threads(1)
    preloaded = preload(data_dir)
    if not runs:
        _run(preloaded, stage / "short")
        return
    short = [_run(preloaded, stage / "short") for _ in range(runs)]
    training = [_run(preloaded, stage / "training") for _ in range(3)]
    print(json.dumps({"short": min(short), "training": min(training)}))


def _run(preloaded: Preloaded, code_dir: Path) -> float:
    fresh = Preloaded(data=preloaded.data, network=copy.deepcopy(preloaded.network), layout=preloaded.layout)
    task = Task(
        submission=code_dir,
        file="submission.py",
        function="unlearning",
        style="dict",
        keywords=(),
        seed=0,
        threads=1,
        device="cpu",
    )
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        began = time.perf_counter()
        b"".join(unlearned_weights(task, fresh).pieces)
        took_s = time.perf_counter() - began
    return float(said.getvalue() or took_s)  # a submission that measures itself says what it found


if __name__ == "__main__":
    main()
