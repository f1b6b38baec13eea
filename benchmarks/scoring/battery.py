"""What wins each attack family without unlearning, on made-up confidences: shares of the oracle by entry, family and N.

python -m benchmarks.scoring.battery [--models 32 128 512] [--examples 60] [--seeds 3]

The entries are those of tests/support/entries_without_unlearning.py.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.shared import options
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import forgetting_quality, n_judged_models, per_example_epsilon
from tests.support.entries_without_unlearning import BATTERY, HONEST, Confidences, Entry

FAMILIES = tuple(AttackFamily)


def quality(entry: Entry, family: AttackFamily, *, n_models: int, n_examples: int, seed: int) -> float:
    """Return F of an entry against freshly drawn retrained models."""
    given = Confidences.drawn(n_models, n_examples, seed)
    unlearned, retrained = entry(given), given.retrained()
    # The published halves are fixed; a competition's crossfit halves are secret, here the seed's.
    halves = 0 if family.is_published else seed
    limit = 2.0**20  # beyond it the reference grids refuse a value
    unlearned = np.clip(unlearned, -limit, limit)
    epsilon = per_example_epsilon(unlearned, retrained, attacks=family, seed=halves)
    return forgetting_quality(epsilon, n_models=n_judged_models(n_models, attacks=family))


def rows(models: list[int], *, n_examples: int, seeds: int) -> Iterator[tuple[str, list[float]]]:
    """Yield each entry with its mean F by N and family."""
    for name, entry in {**HONEST, **BATTERY}.items():
        found = [
            [quality(entry, family, n_models=n, n_examples=n_examples, seed=seed) for seed in range(seeds)]
            for n in models
            for family in FAMILIES
        ]
        yield name, np.mean(found, axis=1).tolist()


def main() -> None:
    asked = options(__doc__, models=[32, 128, 512], examples=60, seeds=3)
    columns = [f"{family}, N = {n}" for n in asked.models for family in FAMILIES]
    print("| entry | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    oracle: list[float] = []
    for name, found in rows(asked.models, n_examples=asked.examples, seeds=asked.seeds):
        oracle = oracle or found
        cells = [
            f"{value:.3f}" if name == "oracle" else f"{value / best:.0%}"
            for value, best in zip(found, oracle, strict=True)
        ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
