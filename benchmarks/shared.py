"""What several benchmarks need: their options, PostgreSQL, the shortest time of some work, and runs in a bare loop."""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.postgres import PostgresServer


def options(doc: str | None, *positional: str, **named: Any) -> argparse.Namespace:
    """Parse the command line. positional: names of paths. named: each option's default, or its type if it has none."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in positional:
        parser.add_argument(name, type=Path)
    for name, default in named.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, list):
            parser.add_argument(flag, nargs="+", type=type(default[0]), default=default)
        elif isinstance(default, type):
            parser.add_argument(flag, type=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A server that runs until the end."""
    server = PostgresServer()
    server.start()
    try:
        yield server
    finally:
        server.remove()


def shortest_s(work: Callable[[], object], *, repeats: int) -> float:
    """Return the shortest time of `work` after one call that is not counted; other processes only ever add to it."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def run_entry(split_dir: Path, unlearning: Callable[..., Any], *, runs: int) -> Any:
    """Return the outputs of runs of a submission's function, one after another in this process."""
    import torch  # noqa: PLC0415 (a benchmark sets variables that are read when it is loaded)

    from lethe.evaluation.image_evaluation import SplitEvaluator  # noqa: PLC0415 (loads torch)
    from lethe.evaluation.shard_outputs import StoredOutputs  # noqa: PLC0415
    from lethe.networks.builders import build  # noqa: PLC0415
    from lethe.runtime.data_loaders import load_data, make_loaders  # noqa: PLC0415

    evaluator, data, outputs = SplitEvaluator.load(split_dir), load_data(split_dir / "visible"), []
    for seed in range(runs):
        net = build(data.network)
        net.load_state_dict(data.original_state)
        torch.manual_seed(seed)
        loaders = make_loaders(data)
        unlearning(net, loaders.retain, loaders.forget, loaders.validation)
        outputs.append(evaluator.evaluate_state(net.state_dict()))
    return StoredOutputs.of_runs(outputs)
