"""Three samples: are unlearned runs more like the retrained or the original models, and where between them?"""

from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field
from scipy.special import ndtr

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Bool, Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult
from lethe.metrics.distribution.two_sample_test import Kernel, distances, kernel_values, median_bandwidth, unbiased_mmd2
from lethe.metrics.scoring.arrays import order_of_runs

MIN_MODELS = 3  # below, the published variance of a sample's term is 0
ROUNDING = 1e-24  # a variance below is one of 0


class KernelParameters(Parameters):
    """kernel: gaussian or laplace. bandwidth: 0 for the mean of the two medians (unlearned to each reference)."""

    kernel: Kernel = "gaussian"
    bandwidth: float = Field(0.0, ge=0.0)


class PermutationParameters(KernelParameters):
    """n_permutations: draws of which reference models are called retrained. seed: of the draws."""

    n_permutations: int = Field(499, ge=19)
    seed: int = Field(0, ge=0)


@dataclass(frozen=True, eq=False)
class Matrices:
    """Kernel values: within each sample, and from the unlearned runs to both references."""

    uu: Float64
    rr: Float64
    oo: Float64
    ur: Float64
    uo: Float64
    bandwidth: float

    @property
    def to_retrained(self) -> float:
        """MMD^2 of unlearned and retrained runs."""
        return unbiased_mmd2(self.uu, self.rr, self.ur)

    @property
    def to_original(self) -> float:
        """MMD^2 of unlearned and original models."""
        return unbiased_mmd2(self.uu, self.oo, self.uo)

    def variance(self, *, published_factor: bool = False) -> float:
        """Return the first-order variance of the difference of the two.

        Each sample's term is four times the variance of its run means, times (n - 2) / (n (n - 1)).
        published_factor: n is the number of unlearned models in all terms, as in the authors' program; for equal
        numbers of models there is no difference.
        """
        terms = (
            (self.ur.mean(axis=1) - self.uo.mean(axis=1)).var(),
            (_row_means(self.rr) - self.ur.mean(axis=0)).var(),
            (_row_means(self.oo) - self.uo.mean(axis=0)).var(),
        )
        sizes = [len(self.uu), len(self.rr), len(self.oo)]
        sizes = [sizes[0]] * 3 if published_factor else sizes
        return float(sum(4.0 * (n - 2) / (n * (n - 1)) * term for n, term in zip(sizes, terms, strict=True)))


def matrices(unlearned: Float64, retrained: Float64, original: Float64, kernel: Kernel, bandwidth: float) -> Matrices:
    """Return the kernel values of three samples. bandwidth: 0 for the median rule."""
    pairs = {
        "uu": (unlearned, unlearned),
        "rr": (retrained, retrained),
        "oo": (original, original),
        "ur": (unlearned, retrained),
        "uo": (unlearned, original),
    }
    apart = {name: distances(*pair, kernel) for name, pair in pairs.items()}
    chosen = bandwidth or (median_bandwidth(apart["ur"], kernel) + median_bandwidth(apart["uo"], kernel)) / 2.0
    values = {name: kernel_values(distance, chosen, kernel) for name, distance in apart.items()}
    return Matrices(**values, bandwidth=chosen)


def relative_test(
    unlearned: Float64, retrained: Float64, original: Float64, *, kernel: Kernel = "gaussian", bandwidth: float = 0.0
) -> MetricResult:
    """Return the p-value of H0 "the unlearned runs are no farther from retrained than from original", in [0, 1].

    A small value: they are nearer to the original, and unlearning failed. A large value alone proves nothing; near 1
    the opposite hypothesis is rejected.
    unlearned, retrained, original: confidences, shapes (n_models, n_examples) each, of possibly unequal numbers of
    models. One original model is a point: its own term has no variance.
    NaN where the statistic has no variance (constant runs, 2 models). table: both discrepancies and the statistic.
    Where all three distributions are equal the test rejects about 1 %, not 5 %; its level holds where retrained and
    original are equally far.
    """
    u, r, o = unlearned, retrained, np.repeat(original, 2, axis=0) if len(original) == 1 else original
    found = matrices(u, r, o, kernel, bandwidth)
    difference, variance = found.to_retrained - found.to_original, found.variance()
    too_few = min(len(u), len(r)) < MIN_MODELS or (len(o) < MIN_MODELS and bool(np.ptp(o, axis=0).any()))
    statistic = np.nan if too_few or variance < ROUNDING else difference / np.sqrt(variance)
    notes = (
        () if np.isfinite(statistic) else ("the statistic has no variance: equal models, or fewer than 3 of a side",)
    )
    return MetricResult(float(ndtr(-statistic)), table=_table(found, statistic), notes=notes)


def relative_test_permutation(
    unlearned: Float64,
    retrained: Float64,
    original: Float64,
    *,
    kernel: Kernel = "gaussian",
    bandwidth: float = 0.0,
    n_permutations: int = 499,
    seed: int = 0,
) -> MetricResult:
    """Return the p-value of `relative_test` when retrained and original models are drawn from their common pool.

    The share of draws, the given labels counted as one, whose statistic is at least the given one. The statistic is
    divided by its own standard deviation, so that the level also holds, for many models, where the two references
    differ and are equally far. With fewer than 3 different original models the asymptotic p-value, and a note.
    """
    u, r, o = unlearned, retrained, np.repeat(original, 2, axis=0) if len(original) == 1 else original
    if min(len(u), len(r), len(o)) < MIN_MODELS or not np.ptp(o, axis=0).any():
        found = relative_test(u, r, o, kernel=kernel, bandwidth=bandwidth)
        note = "not permuted, which needs 3 different original models (setup reuse-n-n): the asymptotic p-value"
        return replace(found, notes=(*found.notes, note))
    given = matrices(u, r, o, kernel, bandwidth)
    pool = np.concatenate((r, o))
    within = kernel_values(distances(pool, pool, kernel), given.bandwidth, kernel)
    across = kernel_values(distances(u, pool, kernel), given.bandwidth, kernel)
    np.fill_diagonal(within, 0.0)
    labels = _labels(pool, len(r), n_permutations=n_permutations, seed=seed)
    statistics = _statistics(within, across, labels)
    if not np.isfinite(statistics[0]):
        note = "the statistic has no variance: the runs are equal"
        return MetricResult(float("nan"), table=_table(given, np.nan), notes=(note,))
    reached = np.nan_to_num(statistics, nan=np.inf) >= statistics[0] - 1e-12 * abs(statistics[0])
    return MetricResult(float(reached.mean()), table=_table(given, float(statistics[0])))


def _labels(pool: Float64, n_retrained: int, *, n_permutations: int, seed: int) -> Float64:
    """Return 1 where a model is called retrained, shape (n_pool, 1 + n_permutations); the given labels come first."""
    rng = np.random.default_rng([seed, *pool.shape])
    order = order_of_runs(pool)
    labels = np.zeros((len(pool), 1 + n_permutations))
    labels[:n_retrained, 0] = 1.0
    for column in range(1, 1 + n_permutations):
        labels[order[rng.permutation(len(pool))[:n_retrained]], column] = 1.0
    return labels


def _statistics(within: Float64, across: Float64, labels: Float64) -> Float64:
    """Return the difference over its standard deviation for every column of labels; NaN without variance."""
    sides = []
    for chosen in (labels, 1.0 - labels):
        n = chosen[:, 0].sum()
        own = within @ chosen / (n - 1.0)  # of each pool model, its mean to the models chosen
        to_u = across.mean(axis=0)[:, None]
        u_means = across @ chosen / n
        means = (own * chosen).sum(axis=0) / n
        sides.append((n, own - to_u, chosen, u_means, means - 2.0 * u_means.mean(axis=0)))
    m = len(across)
    variance = 4.0 * (m - 2) / (m * (m - 1)) * (sides[0][3] - sides[1][3]).var(axis=0)
    for n, projected, chosen, _, _ in sides:
        mean = (projected * chosen).sum(axis=0) / n
        variance = variance + 4.0 * (n - 2) / (n * (n - 1)) * (((projected - mean) ** 2) * chosen).sum(axis=0) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (sides[0][4] - sides[1][4]) / np.sqrt(variance)
    return np.where(variance > ROUNDING, found, np.nan)


def _row_means(within: Float64) -> Float64:
    return np.asarray((within.sum(axis=1) - np.diagonal(within)) / (len(within) - 1))


def _table(found: Matrices, statistic: float) -> dict[str, float | None]:
    return {
        "mmd2_to_retrained": found.to_retrained,
        "mmd2_to_original": found.to_original,
        "statistic": float(statistic) if np.isfinite(statistic) else None,
        "bandwidth": found.bandwidth,
    }


_NEEDS = both_sides("forget_margins") | {"original": Need("forget_margins", Side.ORIGINAL)}

RELATIVE_TEST = Metric(
    title="Relative test: retrained or original",
    function=relative_test,
    fewest_models=2,
    needs=_NEEDS,
    unit="p; small: nearer to the original",
    direction=Direction.HIGHER,
    defaults=KernelParameters,
    bounds=(0.0, 1.0),
    source="Bounliphone et al. 2016 (1511.04581); Ribero, Schrab and Gretton 2026 (2601.19755)",
    formula=(
        "1 - Phi( (MMD^2(U, R) - MMD^2(U, O)) / s ), unbiased MMD^2 over runs, s^2 = sum over U, R, O of "
        "4 (n - 2) / (n (n - 1)) Var(run means)"
    ),
    paper_and_code=(
        "The program takes the number of unlearned models for all three terms of the variance; here each sample has "
        "its own, which is the same for equal numbers. The bandwidth follows the second author's program (median of "
        "squared distances); the first author's takes the root of half the median distance. The test of 2601.19755 has "
        "no published program; this is its predecessor."
    ),
)

PERMUTATION = replace(
    RELATIVE_TEST,
    id="relative_test_permutation",
    title="Relative test by permutation",
    function=relative_test_permutation,
    defaults=PermutationParameters,
    formula=(
        "share of draws, the given one included, with (MMD^2(U, R) - MMD^2(U, O)) / s >= that of the given labels; "
        "a draw assigns the retrained and original models to R and O at random"
    ),
    paper_and_code="",
)


def relative_position(unlearned: Float64, retrained: Float64, original: Float64) -> MetricResult:
    """Return the mean position of the unlearned runs: 0 at the original model, 1 at the mean retrained model.

    unlearned, retrained, original: confidences, shape (n_models, n_examples). Run n starts from original n; where all
    originals are one model, or their number is another, from their mean. per_run: the position of every run, which may
    be below 0 or above 1. Examples are scaled by the standard deviation of the retrained models; those that all
    retrained models agree on are left out and counted in a note.
    NaN where the original lies at the mean retrained model, or no example is left.
    Raises InvalidMetricInput for one retrained model.
    """
    scaled = _Scaled(unlearned, retrained, original)
    way = scaled.aim - scaled.start
    length = (way**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        position = np.where(length > 0.0, ((scaled.runs - scaled.start) * way).sum(axis=1) / length, np.nan)
    known = position[~np.isnan(position)]
    return MetricResult(float(known.mean()) if known.size else float("nan"), per_run=position, notes=scaled.notes)


def nearer_to_retrained(unlearned: Float64, retrained: Float64, original: Float64) -> MetricResult:
    """Return the share of unlearned runs nearer to the mean retrained model than to their original, in [0, 1].

    Arguments, scale and errors as for `relative_position`. per_run: 1 or 0; a tie is not nearer.
    """
    scaled = _Scaled(unlearned, retrained, original)
    if not scaled.runs.shape[1]:
        return MetricResult(float("nan"), notes=scaled.notes)
    to_aim = ((scaled.runs - scaled.aim) ** 2).sum(axis=1)
    to_start = ((scaled.runs - scaled.start) ** 2).sum(axis=1)
    nearer = (to_aim < to_start).astype(np.float64)
    return MetricResult(float(nearer.mean()), per_run=nearer, notes=scaled.notes)


class _Scaled:
    """Runs, the mean retrained model and every run's original, in standard deviations of the retrained models."""

    def __init__(self, unlearned: Float64, retrained: Float64, original: Float64) -> None:
        if len(retrained) < 2:
            raise InvalidMetricInput("the scale needs at least 2 retrained models, not 1", side=Side.RETRAINED)
        own = len(original) == len(unlearned)
        start = original if own else np.broadcast_to(original.mean(axis=0), unlearned.shape)
        deviation = np.where(
            np.ptp(retrained, axis=0) > 0.0, retrained.std(axis=0), 0.0
        )  # rounding leaves constants one
        varied: Bool = deviation > 0.0
        scale = deviation[varied]
        sides = (unlearned, retrained.mean(axis=0), start)
        self.runs, self.aim, self.start = (part[..., varied] / scale for part in sides)
        n_left_out = int((~varied).sum())
        of_all = f"{n_left_out} of {varied.size} examples are left out: all retrained models have the same confidence"
        self.notes = (of_all,) if n_left_out else ()


RELATIVE_POSITION = Metric(
    title="Position between original and retrained",
    function=relative_position,
    needs=_NEEDS,
    unit="0 at the original, 1 at the mean retrained model",
    direction=Direction.TOWARDS_RETRAINED,
    resampling=Resampling.RUNS,
    source="defined by Lethe; the question is that of Ribero, Schrab and Gretton 2026 (2601.19755)",
    formula="mean_n <(u_n - o_n) / sd, (mean r - o_n) / sd> / |(mean r - o_n) / sd|^2, sd over retrained models",
)

NEARER = replace(
    RELATIVE_POSITION,
    id="nearer_to_retrained",
    title="Runs nearer to retrained than to original",
    function=nearer_to_retrained,
    unit="share of runs",
    direction=Direction.HIGHER,
    bounds=(0.0, 1.0),
    formula="mean_n [ |(u_n - mean r) / sd| < |(u_n - o_n) / sd| ], sd over retrained models",
)
