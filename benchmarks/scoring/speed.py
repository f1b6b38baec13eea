"""Time of scoring, as ratios within one run: `python -m benchmarks.scoring.speed [--part intervals]`."""

import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.shared import options
from lethe.metrics.scoring.arrays import Float64
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import per_example_epsilon
from lethe.metrics.scoring.score import ModelOutputs, score
from tests.lethe.metrics.scoring.literal import literal_epsilon

N_MODELS = 512
N_EXAMPLES = 467
N_LITERAL = 3


def draw(n_models: int, n_examples: int, *, seed: int, shift: float = 0.0) -> Float64:
    """Return confidences that look real: examples of many difficulties, models that vary by about two units."""
    rng = np.random.default_rng(seed)
    difficulty = np.random.default_rng(99).uniform(-3.0, 9.0, n_examples)
    spread = np.random.default_rng(98).uniform(1.0, 3.0, n_examples)
    return difficulty + shift + spread * rng.normal(size=(n_models, n_examples))


def shortest_s(work: Callable[[], object], *, repeats: int) -> float:
    """Return the shortest time of `work` after one call that is not counted; other processes only ever add to it."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def scoring(unlearned: Float64, retrained: Float64, family: AttackFamily) -> Callable[[], object]:
    """Return the work of finding every epsilon, checks included."""
    return partial(per_example_epsilon, unlearned, retrained, attacks=family)


def sort_both(unlearned: Float64, retrained: Float64) -> None:
    """Sort each side per example, from a copy laid out for it: the floor of any method that sorts."""
    for side in (unlearned, retrained):
        rows = np.array(side.T, order="C")
        rows.sort(axis=1)


def against_the_program() -> None:
    """Print times at the competition's size against the literal transcription and against sorting."""
    u, r = draw(N_MODELS, N_EXAMPLES, seed=1, shift=0.7), draw(N_MODELS, N_EXAMPLES, seed=2)
    times = {family: shortest_s(scoring(u, r, family), repeats=9) for family in AttackFamily}
    floor = shortest_s(partial(sort_both, u, r), repeats=9)
    literal = [literal_epsilon(u[:, s], r[:, s]) for s in range(N_LITERAL)]
    equal = literal == per_example_epsilon(u[:, :N_LITERAL], r[:, :N_LITERAL], attacks=AttackFamily.REFERENCE).tolist()
    program = shortest_s(partial(literal_epsilon, u[:, 0], r[:, 0]), repeats=3) * N_EXAMPLES
    print(f"N = {N_MODELS}, S = {N_EXAMPLES}, {torch.get_num_threads()} torch threads")
    print(f"  literal transcription {program:8.1f} s (from one example; {N_LITERAL} examples equal: {equal})")
    print(f"  sorting both sides    {floor * 1e3:8.2f} ms")
    for family, took in times.items():
        print(f"  {family:21s} {took * 1e3:8.2f} ms = program / {program / took:,.0f} = {took / floor:.1f} x sorting")


def growth() -> None:
    """Print how the time of each family grows with N and with S."""
    print("growth with N, ms an example (sorting first)")
    for n_models in (64, 512, 1024, 8192, 16384, 65536):
        n_examples = min(N_EXAMPLES, max(8, 2**21 // n_models))
        u, r = draw(n_models, n_examples, seed=1, shift=0.7), draw(n_models, n_examples, seed=2)
        floor = shortest_s(partial(sort_both, u, r), repeats=5)
        line = f"  {n_models:6d} (S = {n_examples:3d}): {floor / n_examples * 1e3:8.3f}"
        for family in (AttackFamily.REFERENCE, AttackFamily.EXACT):
            took = shortest_s(scoring(u, r, family), repeats=5)
            line += f"  {family} {took / n_examples * 1e3:8.3f} ({took / floor:4.1f} x)"
        print(line)
    print("growth with S, N = 512, ms in all")
    for n_examples in (50, 467, 4670):
        u, r = draw(N_MODELS, n_examples, seed=1, shift=0.7), draw(N_MODELS, n_examples, seed=2)
        line = f"  {n_examples:6d}:"
        for family in (AttackFamily.REFERENCE, AttackFamily.EXACT):
            took = shortest_s(scoring(u, r, family), repeats=5)
            line += f"  {family} {took * 1e3:8.1f}"
        print(line)


def intervals() -> None:
    """Print the time of a score with 200 resamples at the competition's size."""
    rng = np.random.default_rng(3)
    sides = [
        ModelOutputs(
            draw(N_MODELS, N_EXAMPLES, seed=seed, shift=shift),
            rng.uniform(0.9, 1, N_MODELS),
            rng.uniform(0.7, 0.8, N_MODELS),
        )
        for seed, shift in ((1, 0.7), (2, 0.0))
    ]
    processors = os.sched_getaffinity(0)
    print(f"final score with 200 resamples, N = {N_MODELS}, S = {N_EXAMPLES}: seconds, and seconds of processor time")
    for family in AttackFamily:
        line = f"  {family:12s}"
        for allowed in ({min(processors)}, processors):
            os.sched_setaffinity(0, allowed)
            took, used = wall_and_processor(partial(score, *sides, attacks=family, n_resamples=200), repeats=3)
            line += f"   {len(allowed)} processors {took:6.2f} ({used:.2f})"
        print(line, flush=True)


def wall_and_processor(work: Callable[[], object], *, repeats: int) -> tuple[float, float]:
    """Return the shortest wall time, and the shortest processor time, of `work` after one call that is not counted."""
    work()
    walls, used = [], []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        used.append(time.process_time() - processor)
    return min(walls), min(used)


PARTS: dict[str, Callable[[], None]] = {"program": against_the_program, "growth": growth, "intervals": intervals}


def main() -> None:
    """Print all parts, or those that are named."""
    for name in options(__doc__, part=[*PARTS]).part:
        PARTS[name]()


if __name__ == "__main__":
    main()
