"""What capture levels 1 and 2 add to an evaluation, measured alternately: `python -m benchmarks.metrics.capture_cost`.

An evaluation here is inference on forget, retain and test set and the file that holds its outputs. The unlearning run
before it, which takes longer, is left out, so the shares of a whole evaluation are smaller.
"""

import argparse
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.splits.evaluation import random_set
from lethe.evaluation.inference import SplitEvaluator
from lethe.evaluation.shard_outputs import RunOutputs, ShardOutputs
from lethe.training.trainer import untrained

LEVELS: Mapping[int, tuple[int, ...]] = {0: (), 1: (1,), 2: (1, 2), 3: (1, 2, 3)}
CASES: tuple[tuple[str, list[int]], ...] = (("mlp", [1, 8, 8]), ("small_cnn", [1, 28, 28]), ("resnet18", [3, 32, 32]))


def stored(outputs: RunOutputs) -> bytes:
    """Return the file of one run."""
    return ShardOutputs.of_runs([outputs], wall_time_s=np.ones(1)).to_bytes()


def measure(network: Mapping[str, Any], sizes: Mapping[str, int], *, device: str, rounds: int) -> None:
    """Print the time and the bytes of a run at every level. In each round the levels take turns, in either order."""
    sets = {name: random_set(network, size) for name, size in sizes.items()}
    state = untrained(network, 0).state_dict()
    evaluators = {level: SplitEvaluator(network, sets, device=device, levels=LEVELS[level]) for level in LEVELS}
    sizes_of_files = {level: len(stored(evaluator.evaluate_state(state))) for level, evaluator in evaluators.items()}
    times: dict[int, list[float]] = {level: [] for level in LEVELS}
    for turn in range(rounds):
        for level in sorted(LEVELS, reverse=bool(turn % 2)):
            start = time.process_time() if device == "cpu" else time.perf_counter()
            stored(evaluators[level].evaluate_state(state))
            times[level].append((time.process_time() if device == "cpu" else time.perf_counter()) - start)
    print(f"{network['name']} {network['input_shape']}, {', '.join(f'{name} {size}' for name, size in sizes.items())}")
    for level in LEVELS:
        beside = {other: ratio(times[level], times[other]) for other in LEVELS if other < min(level, 2)}
        shown = "   ".join(f"{value:6.3f} x level {other}" for other, value in beside.items())
        milliseconds, kilobytes = 1e3 * min(times[level]), sizes_of_files[level] / 1000
        print(f"  level {level}  {milliseconds:9.2f} ms a run  {kilobytes:9.1f} kB   {shown}", flush=True)


def ratio(mine: list[float], others: list[float]) -> float:
    """Return the median over rounds of the ratio of two levels."""
    return statistics.median(first / second for first, second in zip(mine, others, strict=True))


def main() -> None:
    """Print the cost for three networks, or one. On a CPU times are processor time, which other work disturbs less."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", choices=[name for name, _ in CASES])
    parser.add_argument("--rounds", type=int, default=15)
    for name, size in (("forget", 500), ("retain", 4500), ("test", 1000)):
        parser.add_argument(f"--{name}", type=int, default=size)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = {name: getattr(options, name) for name in ("forget", "retain", "test")}
    for name, shape in CASES:
        if options.network in (None, name):
            network = {"name": name, "options": {}, "input_shape": shape, "n_classes": 10, "input_scale": 1 / 64}
            rounds = options.rounds if name != "resnet18" else max(2, options.rounds // 5)
            measure(network, sizes, device=options.device, rounds=rounds)


if __name__ == "__main__":
    main()
