"""Time of every metric of levels 0 to 2, references and intervals included: `python -m benchmarks.metrics.level_two`.

The sizes are a large competition's. Arrays are made up; each metric reads them through one `Inputs`, as a worker does.
Processor seconds are printed beside wall seconds, and of them those of the main thread, which none shares: on a crowded
machine only they say something. With nothing else to do, two processors take the main thread's and half of the others'.
"""

import argparse
import time

import numpy as np
import numpy.typing as npt

from lethe.metrics import Inputs, evaluate, metrics
from lethe.metrics.core.registry import Scope

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
    parser.add_argument("--without", nargs="*", default=[], metavar="ID", help="metrics to leave out")
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
        if entry.scope == Scope.SUBMISSION
        and entry.level <= 2
        and not inputs.missing(entry)
        and entry.id not in options.without
    ]
    print(f"N = {options.models}, S = {options.forget}, T = R = {options.test}, C = {C}, {len(chosen)} metrics")
    total = np.zeros(3)
    for name in chosen:
        before = clocks()
        (found,) = evaluate(inputs, [name]).values()
        took = clocks() - before
        total += took
        print(f"  {name:28} {stated(took)}  {found.not_computed[:80]}", flush=True)
    print(f"  {'all':28} {stated(total)}")


def clocks() -> npt.NDArray[np.float64]:
    """Return the times now: wall, processors, and the main thread's processor."""
    return np.array([time.perf_counter(), time.process_time(), time.thread_time()])


def stated(took: npt.NDArray[np.float64]) -> str:
    wall, processors, main_thread = took
    alone = main_thread + (processors - main_thread) / 2
    return f"{wall:8.2f} s  processors {processors:7.2f} s  main thread {main_thread:7.2f} s  two alone {alone:7.2f} s"


if __name__ == "__main__":
    main()
