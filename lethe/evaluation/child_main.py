"""The child process of `child_runs`: loads data and network once, then forks for every run."""

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # an optimiser's first step imports it, which takes a second in each fork

from lethe.evaluation.child_process import answer_requests, run_forked
from lethe.networks.builders import build
from lethe.runtime.data_loaders import load_data
from lethe.runtime.entry import Preloaded, RunFault, Task, unlearned_weights
from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.faults import describe
from lethe.runtime.weights_layout import ORIGINAL_MODEL, read_layout


def main(data_dir: Path, answers_fd: int) -> None:
    """Serve requests until standard input ends."""
    torch.set_num_threads(1)
    data = load_data(data_dir)
    network = build(data.network)
    network.load_state_dict(data.original_state)
    layout = read_layout((data_dir / ORIGINAL_MODEL).read_bytes())
    preloaded = Preloaded(data=data, network=network, layout=layout)
    answer_requests(answers_fd, lambda request: _run(request, preloaded))


def _run(request: Mapping[str, Any], preloaded: Preloaded) -> dict[str, Any]:
    answer = run_forked(lambda: _work(request, preloaded), limit_s=float(request["wall_time_s"]))
    status = answer.pop("status")
    if status is None:
        return answer | {"fault": {"class": ErrorClass.TIMEOUT}}
    fault = Path(request["fault"])
    if fault.is_file():
        return answer | {"fault": json.loads(fault.read_text(encoding="utf-8"))}
    return answer if status == 0 else answer | {"fault": {"class": ErrorClass.NO_WEIGHTS, "status": status}}


def _work(request: Mapping[str, Any], preloaded: Preloaded) -> int:
    task = Task(
        submission=Path(request["submission"]),
        file=request["file"],
        function=request["function"],
        style=request["style"],
        keywords=tuple(request["keywords"]),
        seed=request["seed"],
        threads=1,
        device="cpu",
    )
    try:
        unlearned = unlearned_weights(task, preloaded)
        Path(request["weights"]).write_bytes(b"".join([preloaded.layout.header, *unlearned.pieces]))
    except BaseException as error:
        if not isinstance(error, RunFault):
            traceback.print_exception(error, limit=-60 if isinstance(error, RecursionError) else None)
        Path(request["fault"]).write_text(json.dumps(describe(error, task)), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
