"""Two samples: do unlearned runs have the distribution of the retrained models? Kernels of many bandwidths."""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from lethe.metrics.core.arrays import Bool, Float64
from lethe.metrics.core.registry import Direction, Metric, Parameters, both_sides
from lethe.metrics.core.result import MetricResult
from lethe.metrics.scoring.arrays import order_of_runs

Kernel = Literal["gaussian", "laplace"]


def distances(first: Float64, second: Float64, kernel: Kernel) -> Float64:
    """Return the L2 (Gaussian) or L1 (Laplace) distances of runs, shape (n_first, n_second)."""
    return np.asarray(cdist(first, second, "euclidean" if kernel == "gaussian" else "cityblock"))


def kernel_values(distance: Float64, bandwidth: float, kernel: Kernel) -> Float64:
    """Return exp(-d^2 / (2 s^2)) or exp(-d / s) of distances d, same shape."""
    scaled = distance / bandwidth
    return np.exp(-0.5 * scaled**2) if kernel == "gaussian" else np.exp(-scaled)


def median_bandwidth(distance: Float64, kernel: Kernel) -> float:
    """Return the bandwidth that a median of distances gives; 1 where all distances are 0.

    Gaussian: root of half the median non-zero squared distance (Gretton et al. 2012). Laplace: the median itself.
    """
    known = distance[distance > 0.0]
    if not known.size:
        return 1.0
    return float(np.sqrt(np.median(known**2) / 2.0)) if kernel == "gaussian" else float(np.median(known))


def mean_without_diagonal(values: Float64) -> float:
    """Return the mean over pairs of different runs of a square matrix."""
    n = len(values)
    return float((values.sum() - np.trace(values)) / (n * (n - 1)))


def unbiased_mmd2(within_first: Float64, within_second: Float64, between: Float64) -> float:
    """Return the unbiased squared mean discrepancy; negative values are possible."""
    return mean_without_diagonal(within_first) + mean_without_diagonal(within_second) - 2.0 * float(between.mean())


MAX_SAMPLE = 500  # runs of a side whose distances choose MMDAgg's bandwidths
MIN_DISTANCE, MIN_LARGEST_DISTANCE = 0.1, 0.3  # MMDAgg's guards against samples without spread


def permuted_labels(pool: Float64, n_first: int, *, n_permutations: int, seed: int) -> Bool:
    """Return whether a run is called one of the first sample, shape (1 + n_permutations, n_pool).

    The given labels come first: the first `n_first` runs of the pool. The draws ignore the order of the runs.
    """
    rng = np.random.default_rng([seed, *pool.shape])
    order = order_of_runs(pool)
    labels = np.zeros((1 + n_permutations, len(pool)), np.bool_)
    labels[0, :n_first] = True
    for row in labels[1:]:
        row[order[rng.permutation(len(pool))[:n_first]]] = True
    return labels


def permuted_mmd2(values: Float64, labels: Bool) -> Float64:
    """Return the unbiased squared discrepancy for every row of labels, shape (n_labels,).

    values: kernel values of the pool, shape (n_pool, n_pool); the diagonal does not count.
    """
    m, n = int(labels[0].sum()), int((~labels[0]).sum())
    first = labels.T.astype(np.float64)
    inner = values - np.diag(np.diagonal(values))
    sums = inner @ first
    within_first = (first * sums).sum(axis=0)
    between = ((1.0 - first) * sums).sum(axis=0)
    within_second = inner.sum() - within_first - 2.0 * between
    return np.asarray(within_first / (m * (m - 1)) + within_second / (n * (n - 1)) - 2.0 * between / (m * n))


def geometric_bandwidths(first: Float64, second: Float64, *, l1: bool, n_bandwidths: int) -> Float64:
    """Return MMDAgg's bandwidths: geometric from half the smallest to twice the largest distance between samples.

    Where the smallest distance is below 0.1 the 5 % quantile is taken, at least 0.1.
    """
    between = np.sort(distances(first[:MAX_SAMPLE], second[:MAX_SAMPLE], "laplace" if l1 else "gaussian"), None)
    least = between[0]
    if least < MIN_DISTANCE:
        least = max(between[int(np.floor(between.size * 0.05))], MIN_DISTANCE)
    largest = max(between[-1], MIN_LARGEST_DISTANCE)
    step = (4.0 * largest / least) ** (1.0 / (n_bandwidths - 1))
    return np.asarray([step**i * least / 2.0 for i in range(n_bandwidths)])


def linear_bandwidths(pool_distances: Float64, *, n_bandwidths: int) -> Float64:
    """Return MMD-FUSE's bandwidths: linear from half the 5 % to twice the 95 % quantile of all pairs' distances."""
    known = pool_distances[np.triu_indices(len(pool_distances))]
    known = np.sort(np.where(known == 0.0, np.median(known), known))
    low, high = (known[int(np.floor(known.size * share))] for share in (0.05, 0.95))
    return np.linspace(low / 2.0, high * 2.0, n_bandwidths)


KERNELS: tuple[Kernel, ...] = ("laplace", "gaussian")
LEVEL = 0.05
BISECTIONS = 50
SAME = 1e-12  # relative difference of statistics that rounding makes


class AggregationParameters(Parameters):
    """n_bandwidths: of each of the two kernels. n_permutations: draws of the labels. seed: of the draws."""

    n_bandwidths: int = Field(5, ge=2)
    n_permutations: int = Field(499, ge=39)
    seed: int = Field(0, ge=0)


def mmd_aggregated(
    unlearned: Float64, retrained: Float64, *, n_bandwidths: int = 5, n_permutations: int = 499, seed: int = 0
) -> MetricResult:
    """Return the p-value of H0 "unlearned and retrained runs have one distribution", in (0, 1].

    unlearned, retrained: confidences, shapes (n_models, n_examples) each; the numbers of models may differ.
    The smallest p-value over Laplace and Gaussian kernels, itself judged by the permutations (minimum p), so that many
    bandwidths cost no level. table: whether MMDAgg rejects at 5 %, and the kernel that shows most.
    Constant, equal runs have p-value 1.
    """
    u, r = unlearned, retrained
    labels = permuted_labels(np.concatenate((u, r)), len(u), n_permutations=n_permutations, seed=seed)
    bandwidths, statistics = aggregated_statistics(u, r, labels, n_bandwidths=n_bandwidths)
    n_levels = (n_permutations + 1) // 2
    rejected = mmdagg_rejections(statistics[:, : n_levels + 1], statistics[:, n_levels + 1 :], level=LEVEL)
    best = int(np.argmin(p_values(statistics)[:, 0]))
    table = {
        "mmdagg_rejects": int(rejected.any()),
        "kernel": KERNELS[best // n_bandwidths],
        "bandwidth": float(bandwidths[best]),
        "mmd2": float(statistics[best, 0]),
    }
    return MetricResult(minimum_p(statistics), table=table)


def aggregated_statistics(
    first: Float64, second: Float64, labels: Bool, *, n_bandwidths: int
) -> tuple[Float64, Float64]:
    """Return bandwidths (n_kernels,) and MMD^2 (n_kernels, n_labels) of MMDAgg's kernels, Laplace ones first.

    MMDAgg's Gaussian kernel is exp(-d^2 / s^2), without a factor 2.
    """
    pool = np.concatenate((first, second))
    chosen, rows = [], []
    for kernel in KERNELS:
        apart = distances(pool, pool, kernel)
        widths = geometric_bandwidths(first, second, l1=kernel == "laplace", n_bandwidths=n_bandwidths)
        for width in widths:
            scaled = apart / width
            rows.append(permuted_mmd2(np.exp(-scaled if kernel == "laplace" else -(scaled**2)), labels))
        chosen.append(widths)
    return np.concatenate(chosen), np.stack(rows)


def mmdagg_rejections(simulated: Float64, for_level: Float64, *, level: float) -> Bool:
    """Return whether each single test rejects at the common level of MMDAgg, shape (n_kernels,).

    simulated: shape (n_kernels, 1 + B1), the data's statistic first. for_level: shape (n_kernels, B2), of other
    permutations, which give the largest common share u of the level by bisection. All kernels have one weight.
    """
    weight = 1.0 / len(simulated)
    ordered = np.sort(simulated, axis=1)
    low, high = 0.0, 1.0 / weight
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        reached = (for_level - _quantiles(ordered, middle * weight)[:, None]).max(axis=0) > 0.0
        low, high = (middle, high) if reached.mean() <= level else (low, middle)
    return np.asarray(p_values(simulated)[:, 0] <= low * weight)


def _quantiles(ordered: Float64, share: float) -> Float64:
    n = ordered.shape[1]
    return np.asarray(ordered[:, max(int(np.ceil(n * (1.0 - share))) - 1, 0)])


def p_values(statistics: Float64) -> Float64:
    """Return of every statistic the share of its row that is at least as large, same shape."""
    n = statistics.shape[1]
    found = np.empty_like(statistics)
    for row, values in zip(found, statistics, strict=True):
        row[:] = (n - np.searchsorted(np.sort(values), values - SAME * np.abs(values), side="left")) / n
    return found


def minimum_p(statistics: Float64) -> float:
    """Return the share of columns whose smallest p-value over rows is at most that of the first column."""
    smallest = p_values(statistics).min(axis=0)
    return float((smallest <= smallest[0]).mean())


def mmd_fuse(
    unlearned: Float64, retrained: Float64, *, n_bandwidths: int = 5, n_permutations: int = 499, seed: int = 0
) -> MetricResult:
    """Return the p-value of the same hypothesis by MMD-FUSE, in (0, 1]: a soft maximum over normalised statistics.

    Arguments and errors as for `mmd_aggregated`. Runs that are all equal have p-value 1.
    """
    u, r = unlearned, retrained
    labels = permuted_labels(np.concatenate((u, r)), len(u), n_permutations=n_permutations, seed=seed)
    fused = fused_statistics(np.concatenate((u, r)), labels, n_bandwidths=n_bandwidths)[1]
    reached = fused >= fused[0] - SAME * abs(fused[0])
    return MetricResult(float(reached.mean()), table={"fused": float(fused[0])})


def fused_statistics(pool: Float64, labels: Bool, *, n_bandwidths: int) -> tuple[Float64, Float64]:
    """Return the normalised statistics (n_kernels, n_labels), Laplace kernels first, and their log mean exp.

    A statistic is n (n - 1) MMD^2 / sqrt(sum of squared kernel values / (n (n - 1))), n the smaller sample.
    """
    smaller = min(int(labels[0].sum()), int((~labels[0]).sum()))
    pairs = smaller * (smaller - 1)
    rows = []
    for kernel in KERNELS:
        apart = distances(pool, pool, kernel)
        for width in linear_bandwidths(apart, n_bandwidths=n_bandwidths):
            scaled = apart / (width or 1.0)
            values = np.exp(-np.sqrt(2.0) * scaled if kernel == "laplace" else -0.5 * scaled**2)
            np.fill_diagonal(values, 0.0)
            rows.append(pairs * permuted_mmd2(values, labels) / np.sqrt((values**2).sum() / pairs))
    statistics = np.stack(rows)
    return statistics, np.asarray(logsumexp(statistics, axis=0, b=1.0 / len(statistics)))


METRIC = Metric(
    title="Kernel two-sample test, many bandwidths",
    function=mmd_aggregated,
    needs=both_sides("forget_margins"),
    fewest_models=2,
    unit="p; small: another distribution",
    direction=Direction.HIGHER,
    defaults=AggregationParameters,
    bounds=(0.0, 1.0),
    source="Schrab et al. 2023 (2110.15073); Ribero, Schrab and Gretton 2026 (2601.19755)",
    formula=(
        "min over 10 kernels of the permutation p-value of MMD^2(U, R), and the share of permutations with as small a "
        "minimum"
    ),
    paper_and_code=(
        "MMDAgg returns a rejection at a level, which the table has; the value is the minimum p of the same "
        "statistics. MMDAgg's program uses a wild bootstrap for equal numbers of models, which pairs them by position; "
        "here labels are permuted. Ties are counted against rejection and not broken at random."
    ),
)

FUSE = replace(
    METRIC,
    id="mmd_fuse",
    title="Kernel two-sample test, fused (MMD-FUSE)",
    function=mmd_fuse,
    source="Biggs, Schrab and Gretton 2023 (2306.08777)",
    formula=(
        "share of permutations, the data included, with log mean_k exp(n (n - 1) MMD_k^2 / s_k) >= the data's; "
        "s_k^2 = sum k^2 / (n (n - 1))"
    ),
    paper_and_code=(
        "The paper multiplies by the root of n (n - 1), the program by n (n - 1), which is nearer to a maximum; this "
        "is the program's."
    ),
)
