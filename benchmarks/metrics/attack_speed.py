"""The attacks against their authors' formulation, at 64 models, 500 forget and 2000 test examples, 10 classes."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.metrics import literal_attacks as literal
from lethe.metrics.attacks.classwise_attack import Scored, attack_accuracy
from lethe.metrics.core.softmax import softmax
from lethe.metrics.membership.lira import lira
from lethe.metrics.membership.ulira_correctness import membership_probabilities
from lethe.metrics.membership.ulira_split import ulira_split
from lethe.metrics.membership.umia import held_out_accuracies, shuffled

MODELS, FORGET, TEST, CLASSES = 64, 500, 2000, 10
Compared = tuple[Callable[[], object], Callable[[], object]]


def seconds(work: Callable[[], object], *, repeats: int) -> float:
    """Return the shortest of the times."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def comparisons(generator: np.random.Generator) -> dict[str, Compared]:
    """Return, by name, the metric and its literal formulation on the same arrays."""
    u, r = generator.normal(2.3, 1, (MODELS, FORGET)), generator.normal(2.0, 1.2, (MODELS, FORGET))
    forget, test = generator.gamma(0.5, 0.5, (MODELS, FORGET)), generator.gamma(0.5, 0.6, (MODELS, TEST))
    pairs = [shuffled(x, y, seed=0) for x, y in zip(forget, test, strict=True)]
    return {
        "U-MIA": (
            lambda: held_out_accuracies(*(np.stack(side) for side in zip(*pairs, strict=True))),
            lambda: [literal.umia_scores(*pair) for pair in pairs],
        ),
        "U-LiRA, one split, normal": (
            lambda: ulira_split(u, r),
            lambda: [literal.ulira_ratios(u, r, example) for example in range(FORGET)],
        ),
        "U-LiRA on correctness": _correctness(generator),
        "class-wise thresholds": _classwise(generator),
        "LiRA online": _lira(generator),
    }


def _correctness(generator: np.random.Generator) -> Compared:
    correct, state = generator.random((FORGET, MODELS)) < 0.8, generator.integers(0, 3, (FORGET, MODELS))
    return (
        lambda: membership_probabilities(correct, state),
        lambda: literal.correctness_memberships(correct, state),
    )


def _classwise(generator: np.random.Generator) -> Compared:
    labels = [generator.integers(0, CLASSES, FORGET // 2) for _ in range(4)]
    values = [[softmax(generator.normal(0, 3, (FORGET // 2, CLASSES)))[:, 0] for _ in labels] for _ in range(MODELS)]

    def compiled() -> list[float]:
        parts = ([Scored(v, y) for v, y in zip(model, labels, strict=True)] for model in values)
        return [attack_accuracy(*part, n_classes=CLASSES)[1] for part in parts]

    return compiled, lambda: [literal.threshold_accuracy(model, labels, CLASSES) for model in values]


def _lira(generator: np.random.Generator) -> Compared:
    scores = generator.normal(0, 1, (MODELS, TEST, 2))
    keep: npt.NDArray[np.bool_] = generator.random((MODELS, TEST)) < 0.5
    parts = scores[:-4], keep[:-4], scores[-4:], keep[-4:]
    return lambda: lira(*parts), lambda: literal.lira_online(*parts)


def main() -> None:
    """Print the times and their ratio."""
    print(f"{'attack':28} {'here':>9} {'literal':>9} {'times':>6}")
    for name, (here, as_published) in comparisons(np.random.default_rng(0)).items():
        here()  # compiles
        fast, slow = seconds(here, repeats=3), seconds(as_published, repeats=1)
        print(f"{name:28} {fast:8.3f}s {slow:8.3f}s {slow / fast:5.1f}x", flush=True)


if __name__ == "__main__":
    main()
