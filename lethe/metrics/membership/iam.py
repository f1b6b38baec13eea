"""IAM: how far a run is on the interpolated way from its original model to retrained ones, per example."""

from typing import Literal

import numpy as np
from pydantic import Field
from scipy.special import ndtr

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult

Family = Literal["gumbel", "normal"]
EULER = 0.5772  # the program's digits
E1, E2 = 1e-2, 1e-5


class IamParameters(Parameters):
    """family: of the distribution. steps: from retrained (0) to original (1). per_example_deviation: else one."""

    family: Family = "gumbel"
    steps: int = Field(100, ge=2)
    per_example_deviation: bool = False


def iam(
    unlearned: Float64,
    retrained: Float64,
    original: Float64,
    *,
    family: Family = "gumbel",
    steps: int = 100,
    per_example_deviation: bool = False,
) -> MetricResult:
    """Return the mean unlearning score over runs and examples, in [0, 1].

    unlearned, retrained, original: probabilities of the true class on the forget set, shapes (n_models, n_examples).
    Run n starts from original n; where their numbers differ all originals must be one model.
    per_run, per_example: means. Retrained models score about 0.65 to 0.7, not 1, and original ones about 0.3: compare
    with both. With one deviation for all examples, a score depends on the examples that are scored with it.
    NaN where neither retrained nor original models vary.
    Raises InvalidMetricInput for another number of originals.
    Source: arXiv:2506.06112; unlearning_lib/metrics/iam_score.py.
    """
    u, r, o = map(signal, (unlearned, retrained, original))
    starts = _starts(o, len(u))
    found = np.stack(
        [
            unlearning_scores(run, start, r, family=family, steps=steps, per_example_deviation=per_example_deviation)
            for run, start in zip(u, starts, strict=True)
        ]
    )
    notes = () if np.isfinite(found).all() else ("some scores are undefined: the retrained models do not vary",)
    return MetricResult(float(found.mean()), per_run=found.mean(axis=1), per_example=found.mean(axis=0), notes=notes)


def signal(probability: Float64, *, e1: float = E1, e2: float = E2) -> Float64:
    """Return -log(e1 - log(e2 + p)), scaled so that p = 0 gives 0 and p = 1 gives 1; same shape."""
    low, high = (-np.log(e1 - np.log(e2 + end)) for end in (0.0, 1.0))
    return np.asarray((-np.log(e1 - np.log(e2 + probability)) - low) / (high - low))


def unlearning_scores(
    run: Float64,
    original: Float64,
    retrained: Float64,
    *,
    family: Family = "gumbel",
    steps: int = 100,
    per_example_deviation: bool = False,
) -> Float64:
    """Return the score of every example of one run, shape (n_examples,).

    run, original: signals, shape (n_examples,). retrained: shape (n_models, n_examples). At each step a < 1 the signals
    retrained + a (original - retrained) give a distribution; the score is 1 minus the mean of its values at the run,
    weighted by the step after. One retrained model forces one deviation for all examples.
    """
    ways = np.linspace(0.0, 1.0, steps)
    mixed = 1.0 - ways[:-1, None]
    means = mixed * retrained.mean(axis=0) + ways[:-1, None] * original
    deviations = mixed * retrained.std(axis=0)
    if not per_example_deviation or len(retrained) == 1:  # within examples and between their means
        deviations = np.sqrt((deviations**2).mean(axis=1) + means.var(axis=1))[:, None]
    elif family == "gumbel":
        deviations = np.where(deviations == 0.0, 1e-10, deviations)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        reached = _cumulative(run, means, deviations, family)
    return np.asarray(1.0 - (ways[1:, None] * reached).sum(axis=0) / ways[1:].sum())


def _cumulative(run: Float64, means: Float64, deviations: Float64, family: Family) -> Float64:
    if family == "normal":
        return np.asarray(ndtr((run - means) / (deviations + 1e-30)))
    scale = np.sqrt(6.0) * deviations / np.pi
    return np.asarray(np.exp(-np.exp(-(run - (means - EULER * scale)) / scale)))


def _starts(original: Float64, n_runs: int) -> Float64:
    if len(original) == n_runs:
        return original
    if np.ptp(original, axis=0).any():
        raise InvalidMetricInput(
            f"run n starts from original n: {n_runs} runs and {len(original)} different originals do not fit",
            side=Side.ORIGINAL,
        )
    return np.broadcast_to(original[0], (n_runs, original.shape[1]))


METRIC = Metric(
    id="iam",
    title="IAM unlearning score",
    function=iam,
    needs={
        "unlearned": Need("forget_probability"),
        "retrained": Need("forget_probability", Side.RETRAINED),
        "original": Need("forget_probability", Side.ORIGINAL),
    },
    unit="[0, 1]",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=IamParameters,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="IAM 2025 (2506.06112)",
    formula="1 - sum_i a_(i+1) F_(a_i)(s_u) / sum_i a_(i+1), F_a of retrained + a (original - retrained) signals",
    paper_and_code=(
        "As the program: weights and distributions are shifted by one step, the Gumbel distribution is fitted by "
        "moments with four digits of Euler's constant, and the deviation is one for all examples. The program uses the "
        "first 128 retrained models, this all."
    ),
)
