"""Scores of single runs against references: RMIA, IAM, and the noise that the forget examples were trained with."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.special import ndtr, ndtri

from lethe.metrics.attacks.likelihood_attack import roc_curve
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult


class RmiaParameters(Parameters):
    """offline_a: how far unseen the mean of the retrained models is taken to be. gamma: the ratio to exceed."""

    offline_a: float = Field(0.3, ge=0.0, le=1.0)
    gamma: float = Field(1.0, gt=0.0)


def rmia(
    unlearned: Float64,
    retrained: Float64,
    unlearned_population: Float64,
    retrained_population: Float64,
    *,
    offline_a: float = 0.3,
    gamma: float = 1.0,
) -> MetricResult:
    """Return the area under the ROC curve of unlearned against retrained runs, mean over examples; 0.5 is ideal.

    unlearned, retrained: probabilities of the true class on the forget set, shapes (n_models, n_examples).
    unlearned_population, retrained_population: the same on test examples, shapes (n_models, n_population).
    All retrained models are OUT; each retrained model is scored against the others. per_example: the area of every
    example. table: the mean score of both sides.
    Raises InvalidMetricInput for one retrained model.
    Source: Zarifzadeh et al. 2024 (arXiv:2312.03262); ml_privacy_meter, modules/mia/attacks/rmia.py.
    """
    u, r, u_pop, r_pop = unlearned, retrained, unlearned_population, retrained_population
    if len(r) < 2:
        raise InvalidMetricInput(
            "retrained models are scored against one another: give at least 2", side=Side.RETRAINED
        )
    chosen: Any = {"offline_a": offline_a, "gamma": gamma}
    ours = np.stack([scores(row, r, population, r_pop, **chosen) for row, population in zip(u, u_pop, strict=True)])
    theirs = leave_one_out(r, r_pop, **chosen)
    members = np.repeat([True, False], (len(u), len(r)))
    areas = np.array([roc_curve(np.concatenate(pair), members).area for pair in zip(ours.T, theirs.T, strict=True)])
    table = {"score": float(ours.mean()), "retrained_score": float(theirs.mean())}
    return MetricResult(float(areas.mean()), per_example=areas, table=table)


def leave_one_out(retrained: Float64, population: Float64, **chosen: Any) -> Float64:
    """Return the scores of every retrained model with the others as OUT, shape (n_models, n_examples)."""
    n = len(retrained)
    own, of_population = ((side.sum(axis=0) - side) / (n - 1) for side in (retrained, population))
    return np.stack([_scores(*rows, **chosen) for rows in zip(retrained, own, population, of_population, strict=True)])


def scores(
    target: Float64, out: Float64, target_population: Float64, out_population: Float64, **chosen: Any
) -> Float64:
    """Return the share of the population that every example of one model exceeds by more than gamma, (n_examples,).

    target: shape (n_examples,); out: (n_out, n_examples); the population's likewise. chosen: `offline_a`, `gamma`. A
    tie scores 0.
    """
    return _scores(target, out.mean(axis=0), target_population, out_population.mean(axis=0), **chosen)


def _scores(
    target: Float64, out: Float64, population: Float64, out_population: Float64, *, offline_a: float, gamma: float
) -> Float64:
    ratio, reference = _ratio(target, out, offline_a), np.sort(gamma * _ratio(population, out_population, offline_a))
    known = reference[~np.isnan(reference)]
    above = np.searchsorted(known, ratio, side="left")
    return np.where(np.isnan(ratio), 0.0, above / reference.size)


def _ratio(probability: Float64, out: Float64, offline_a: float) -> Float64:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(probability / ((1.0 + offline_a) / 2.0 * out + (1.0 - offline_a) / 2.0))


RMIA = Metric(
    title="RMIA against retrained models",
    function=rmia,
    needs={
        "unlearned": Need("forget_probability"),
        "retrained": Need("forget_probability", Side.RETRAINED),
        "unlearned_population": Need("test_probability"),
        "retrained_population": Need("test_probability", Side.RETRAINED),
    },
    unit="area under the ROC curve",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=RmiaParameters,
    per_example=True,
    bounds=(0.0, 1.0),
    source="Zarifzadeh et al. 2024 (2312.03262)",
    formula=(
        "score(x) = share over test examples z of [ (p(x) / pbar(x)) / (p(z) / pbar(z)) > gamma ], "
        "pbar = (1 + a) / 2 mean_R p + (1 - a) / 2; mean over x of the AUC of unlearned against retrained runs"
    ),
    paper_and_code=(
        "The paper writes >=, the program >, and so does this: ties score 0. The program's default averages the larger "
        "half of the OUT probabilities, for paired training; retrained models are all OUT, so all count. Its a is "
        "tuned on a paired model unless given; here it is given, as its argument's default."
    ),
)


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
    chosen: Any = {"family": family, "steps": steps, "per_example_deviation": per_example_deviation}
    found = np.stack([unlearning_scores(run, start, r, **chosen) for run, start in zip(u, starts, strict=True)])
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


IAM = Metric(
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


RATE = 0.01


def noise_alignment(noise: npt.ArrayLike, gradients: npt.ArrayLike, *, deviation: float) -> Float64:
    """Return <noise, gradient> / (deviation |gradient|) of every example, shape (n_examples,); NaN without a gradient.

    noise: what was added to the inputs in training, shape (n_examples, n_inputs), from N(0, deviation^2).
    gradients: of the loss in the input, at the clean input, same shape.
    A model that fits the noisy inputs has negative values, one that never saw them N(0, 1).
    Raises InvalidMetricInput for unequal shapes or a deviation that is not above 0.
    Source: Pawelczyk et al. 2024 (arXiv:2406.17216), algorithm 2.
    """
    axes = ("examples", "inputs")
    added, slopes = (
        real_array(values, axes=axes, name=name) for name, values in (("noise", noise), ("gradients", gradients))
    )
    if added.shape != slopes.shape:
        raise InvalidMetricInput(
            f"noise of shape {added.shape} and gradients of {slopes.shape} are not of the same inputs"
        )
    if not deviation > 0.0:
        raise InvalidMetricInput(f"the noise's deviation must be above 0, not {deviation}")
    length = np.sqrt((slopes**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(length > 0.0, (added * slopes).sum(axis=1) / (deviation * length), np.nan)


def gaussian_score(unlearned: Float64) -> MetricResult:
    """Return the mean over runs of the mean alignment times the root of the number of examples; near 0 when forgotten.

    unlearned: `noise_alignment` of every run, shape (n_models, n_examples); N(0, 1) each when the noise is forgotten,
    so that the value of a run is a z statistic; negative when it is not. per_run: that statistic.
    table: the share of examples below the lower and above the upper 1 % point of N(0, 1), and the mean.
    Source: Pawelczyk et al. 2024 (arXiv:2406.17216), algorithms 1 and 2; the test on the scores is Lethe's.
    """
    point = float(ndtri(1.0 - RATE))
    z = unlearned.mean(axis=1) * np.sqrt(unlearned.shape[1])
    table = {
        "lower_share": float((unlearned < -point).mean()),
        "upper_share": float((unlearned > point).mean()),
        "mean": float(unlearned.mean()),
    }
    return MetricResult(float(z.mean()), per_run=z, table=table)


GAUSSIAN_SCORE = Metric(
    title="Gaussian unlearning score",
    function=gaussian_score,
    needs={"unlearned": Need("noise_alignment")},
    unit="z",
    direction=Direction.TOWARDS_RETRAINED,
    resampling=Resampling.RUNS,
    source="Pawelczyk et al. 2024 (2406.17216), algorithms 1 and 2",
    formula="mean_n sqrt(S) mean_x <xi_x, g_nx> / (sigma |g_nx|), g the input gradient of the loss at the clean input",
    paper_and_code=(
        "The paper reads the true positive rate at 1 % of the upper tail; with its sign a model that has not forgotten "
        "lies in the lower one. Examples without a gradient have no score and must be left out. Training must have "
        "been poisoned with known noise, which no competition's preparation does: the array is the user's own."
    ),
)
