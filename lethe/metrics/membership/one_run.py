"""Bounds of epsilon from one run: how many of its guesses about which examples were included can be right by chance."""

from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, ndtr, ndtri
from scipy.stats import binom

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult

MIN_NOISE, MAX_NOISE = 1e-3, 1e3
MAX_EPSILON = 1e3


class OneRunParameters(Parameters):
    """guessed: share of the examples that the attack says anything about. significance, delta: of the bound.

    seed: draws the examples of the larger set.
    """

    guessed: float = Field(0.2, gt=0.0, le=1.0)
    significance: float = Field(0.05, gt=0.0, lt=0.5)
    delta: float = Field(1e-5, gt=0.0, lt=1.0)
    seed: int = Field(0, ge=0)


def gaussian_delta(epsilon: float, noise: float) -> float:
    """Return the delta of a Gaussian mechanism of this noise (sensitivity 1) at epsilon: Balle and Wang 2018."""
    lost = np.exp(epsilon + log_ndtr(-epsilon * noise - 0.5 / noise))
    return float(ndtr(-epsilon * noise + 0.5 / noise) - lost)


def gaussian_epsilon(noise: float, delta: float) -> float:
    """Return the epsilon of a Gaussian mechanism of this noise at delta, at least 0."""
    if gaussian_delta(0.0, noise) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(high, noise) > delta and high < MAX_EPSILON:
        high *= 2.0
    if high >= MAX_EPSILON:
        return MAX_EPSILON
    return float(brentq(lambda epsilon: gaussian_delta(epsilon, noise) - delta, 0.0, high, xtol=1e-10))


def recursion(
    noise: float, *, n_examples: int, guesses: int, correct: int, significance: float, alphabet: int = 2
) -> tuple[Float64, Float64]:
    """Return r and h of the f-DP audit at this noise, shape (correct + 1,), from `correct` down to 0 right guesses.

    Source: Mahloujifar et al. 2024 (arXiv:2410.22235), algorithm `audit_rh_with_cap`.
    """
    r, h = np.empty(correct + 1), np.empty(correct + 1)
    r[correct] = significance * correct / n_examples
    h[correct] = significance * (guesses - correct) / n_examples
    for i in range(correct - 1, -1, -1):
        possible = r[i + 1] <= 1.0  # above 1 the audit is decided already; h stays
        h[i] = max(h[i + 1], (alphabet - 1) * ndtr(ndtri(r[i + 1]) - 1.0 / noise)) if possible else h[i + 1]
        r[i] = r[i + 1] + i / (guesses - i) * (h[i] - h[i + 1])
    return r, h


def is_rejected(noise: float, *, n_examples: int, guesses: int, **given: Any) -> bool:
    """Return whether so many right guesses refute that the run is as private as a Gaussian mechanism of this noise.

    given: `correct`, `significance` and `alphabet` as for `recursion`.
    """
    r, h = recursion(noise, n_examples=n_examples, guesses=guesses, **given)
    return bool(r[0] + h[0] > guesses / n_examples)


def epsilon_f_dp(*, delta: float, **counts: Any) -> float:
    """Return the lower bound of epsilon of the f-DP audit, nats; 0 where no noise is refuted.

    counts: `n_examples`, each included by a fair coin; `guesses` and `correct`, of which so many were guessed, and
    guessed rightly; `significance` and `alphabet` as for `recursion`.
    Raises InvalidMetricInput for counts that do not fit. Source: Mahloujifar et al. 2024 (arXiv:2410.22235).
    """
    _require_counts(counts["n_examples"], counts["guesses"], counts["correct"])
    low, high = np.log(MIN_NOISE), np.log(MAX_NOISE)
    if not is_rejected(float(np.exp(high)), **counts):
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_rejected(float(np.exp(middle)), **counts) else (middle, high)
    return gaussian_epsilon(float(np.exp(high)), delta)


def p_value_one_run(epsilon: float, *, n_examples: int, guesses: int, correct: int, delta: float) -> float:
    """Return the probability of so many right guesses under (epsilon, delta)-privacy, at most 1.

    Source: Steinke et al. 2023 (arXiv:2305.08846), theorem 5.2.
    """
    rate = expit(epsilon)
    at_least = binom.sf(correct - 1, guesses, rate)
    steps = np.arange(1, correct + 1)
    gained = (binom.sf(correct - steps - 1, guesses, rate) - at_least) / steps
    return float(min(at_least + 2.0 * n_examples * delta * np.max(gained, initial=0.0), 1.0))


def epsilon_one_run(*, n_examples: int, guesses: int, correct: int, significance: float, delta: float) -> float:
    """Return the lower bound of epsilon of Steinke et al. 2023, nats, at least 0; arguments as `epsilon_f_dp`."""
    _require_counts(n_examples, guesses, correct)

    def surplus(epsilon: float) -> float:
        return significance - p_value_one_run(
            epsilon, n_examples=n_examples, guesses=guesses, correct=correct, delta=delta
        )

    if surplus(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while surplus(high) > 0.0:
        high *= 2.0
    return float(brentq(surplus, 0.0, high, xtol=1e-9))


def _require_counts(n_examples: int, guesses: int, correct: int) -> None:
    if not 0 <= correct <= guesses <= n_examples or guesses < 1:
        raise InvalidMetricInput(
            f"{correct} right of {guesses} guesses on {n_examples} examples: 0 <= right <= guesses <= examples, "
            "and at least 1 guess"
        )


def one_run_audit(
    unlearned: Float64,
    unlearned_test: Float64,
    retrained: Float64,
    retrained_test: Float64,
    *,
    guessed: float = 0.2,
    significance: float = 0.05,
    delta: float = 1e-5,
    seed: int = 0,
) -> MetricResult:
    """Return the mean over runs of the f-DP audit's lower bound of epsilon, nats.

    unlearned, retrained: losses on the forget set, shapes (n_models, n_examples); *_test: on the test set. Equally many
    forget and test examples are the canaries: those of the larger set are drawn. An example's score is the
    retrained models' mean loss minus the run's; the highest scores are guessed forget examples, the lowest test ones.
    per_run: the bound of every run, each valid for itself. table: the mean of Steinke's bound, the share of
    right guesses.
    Which examples are forget ones was decided by the cut of the data, not by a coin each, and the retrained models'
    means are taken as known; both make the bound an approximation.
    Raises InvalidMetricInput for too few examples to guess about.
    """
    size = min(unlearned.shape[1], unlearned_test.shape[1])
    n_each = int(np.floor(guessed * size))
    if n_each < 1:
        raise InvalidMetricInput(f"{guessed:g} of {size} forget and test examples is less than one guess of each kind")
    forget, test = (
        _scores(ours, theirs, size, seed=seed)
        for ours, theirs in ((unlearned, retrained), (unlearned_test, retrained_test))
    )
    right = _right_guesses(forget, test, n_each)
    counts: dict[str, Any] = {
        "n_examples": 2 * size,
        "guesses": 2 * n_each,
        "significance": significance,
        "delta": delta,
    }
    different, of_run = np.unique(right, return_inverse=True)
    per_run = np.array([epsilon_f_dp(correct=int(n), **counts) for n in different])[of_run]
    steinke = np.array([epsilon_one_run(correct=int(n), **counts) for n in different])[of_run]
    table = {"steinke": float(steinke.mean()), "right": float(right.mean() / (2 * n_each))}
    return MetricResult(float(per_run.mean()), per_run=per_run, table=table)


def _scores(losses: Float64, retrained: Float64, size: int, *, seed: int) -> Float64:
    """Return mean retrained loss minus loss; of a larger set, `size` examples drawn by their rank in the mean."""
    mean = retrained.mean(axis=0)
    order = np.lexsort((losses.mean(axis=0), mean))
    if mean.size > size:
        order = order[np.sort(np.random.default_rng([seed, mean.size]).permutation(mean.size)[:size])]
    return np.asarray(mean[order] - losses[:, order])


def _right_guesses(forget: Float64, test: Float64, n_each: int) -> npt.NDArray[np.int64]:
    """Return how many of the n_each highest scores are forget ones plus how many of the lowest are test ones.

    Ties count against the attack: at the upper end test examples come first, at the lower end forget ones.
    """
    n = forget.shape[1]
    highest = np.argsort(-np.concatenate((test, forget), axis=1), axis=1, kind="stable")[:, :n_each]
    lowest = np.argsort(np.concatenate((forget, test), axis=1), axis=1, kind="stable")[:, :n_each]
    return np.asarray((highest >= n).sum(axis=1) + (lowest >= n).sum(axis=1))


METRIC = Metric(
    title="One-run audit (f-DP)",
    function=one_run_audit,
    needs={
        "unlearned": Need("forget_loss"),
        "unlearned_test": Need("test_loss"),
        "retrained": Need("forget_loss", Side.RETRAINED),
        "retrained_test": Need("test_loss", Side.RETRAINED),
    },
    unit="nats",
    defaults=OneRunParameters,
    bounds=(0.0, float("inf")),
    resampling=Resampling.RUNS,
    source="Mahloujifar et al. 2024 (2410.22235); Steinke et al. 2023 (2305.08846)",
    formula="mean over runs of the largest epsilon(noise) that the number of right guesses refutes",
    paper_and_code=(
        "PrivacyGuard's grid of noise levels reports 0.40 where nothing is refuted; here that is 0, and the noise is "
        "continuous, as in jax_privacy."
    ),
)
