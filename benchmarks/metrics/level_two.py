"""Time of every metric of levels 0 to 2, references and intervals included: `python -m benchmarks.metrics.level_two`.

The sizes are a large competition's. Arrays are made up; each metric reads them through one `Inputs`, as a worker does.
Processor seconds are printed beside wall seconds: on a crowded machine only they say something.
"""

import argparse
import time

import numpy as np

from lethe.metrics import Inputs, evaluate, metrics
from lethe.metrics.registry import Scope

C = 10
Arrays = dict[str, np.ndarray]


def side(n_models: int, sizes: dict[str, int], *, seed: int, strength: float) -> Arrays:
    """Return the arrays of one side, as inference stores them."""
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for name, size in sizes.items():
        logits = rng.normal(size=(n_models, size, C))
        logits[:, np.arange(size), labels(size)] += strength
        true = np.take_along_axis(logits, labels(size)[None, :, None], axis=2)[..., 0]
        log_sum = np.log(np.exp(logits).sum(axis=2))
        arrays[f"{name}_logits"] = logits.astype(np.float16)
        arrays[f"{name}_loss"] = (log_sum - true).astype(np.float32)
        if name == "forget":
            others = np.log(np.exp(log_sum) - np.exp(true))
            arrays["confidences"] = true - others
            arrays["forget_correct"] = logits.argmax(axis=2) == labels(size)
    arrays |= {name: rng.uniform(0.8, 1.0, n_models) for name in ("retain_accuracy", "test_accuracy")}
    return arrays | {"wall_time_s": rng.uniform(1.0, 2.0, n_models), "epsilon": rng.gamma(1.2, 2.0, sizes["forget"])}


def labels(size: int) -> np.ndarray:
    return np.arange(size) % C


def main() -> None:
    """Print the time of each metric and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=512)
    parser.add_argument("--forget", type=int, default=500)
    parser.add_argument("--test", type=int, default=2000)
    options = parser.parse_args()
    sizes = {"forget": options.forget, "test": options.test, "retain": options.test}
    shared = {f"{name}_labels": labels(size) for name, size in sizes.items()} | {"retraining_time_s": np.asarray(9.0)}
    shared["random_forget_logits"] = np.random.default_rng(9).normal(size=(5, options.forget, C))
    unlearned, retrained, oracle = (
        side(options.models, sizes, seed=seed, strength=2.0 + seed / 10) for seed in range(3)
    )
    inputs = Inputs(unlearned, retrained, oracle, side(1, sizes, seed=4, strength=4.0), shared=shared)
    chosen = [
        entry.id
        for entry in metrics().values()
        if entry.scope == Scope.SUBMISSION and entry.level <= 2 and not inputs.missing(entry)
    ]
    print(f"N = {options.models}, S = {options.forget}, T = R = {options.test}, C = {C}, {len(chosen)} metrics")
    total, processor = 0.0, 0.0
    for name in chosen:
        wall, used = time.perf_counter(), time.process_time()
        (found,) = evaluate(inputs, [name]).values()
        wall, used = time.perf_counter() - wall, time.process_time() - used
        total, processor = total + wall, processor + used
        print(f"  {name:28} {wall:8.2f} s  processor {used:8.2f} s  {found.not_computed[:80]}", flush=True)
    print(f"all: {total:.1f} s, processor {processor:.1f} s")


if __name__ == "__main__":
    main()
