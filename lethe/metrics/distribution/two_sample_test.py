"""Two samples: do the unlearned runs have the distribution of the retrained models? Kernels of many bandwidths."""

from dataclasses import replace

import numpy as np
from pydantic import Field
from scipy.special import logsumexp

from lethe.metrics.core.arrays import Bool, Float64
from lethe.metrics.core.registry import Direction, Metric, Parameters, both_sides
from lethe.metrics.core.result import MetricResult
from lethe.metrics.distribution.kernels import (
    Kernel,
    distances,
    geometric_bandwidths,
    linear_bandwidths,
    permuted_labels,
    permuted_mmd2,
)

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
    unlearned: Float64,
    retrained: Float64,
    *,
    n_bandwidths: int = 5,
    n_permutations: int = 499,
    seed: int = 0,
) -> MetricResult:
    """Return the p-value of H0 "unlearned and retrained runs have one distribution", in (0, 1].

    unlearned, retrained: confidences, shapes (n_models, n_examples) each; the numbers of models may differ.
    The smallest p-value over Laplace and Gaussian kernels, itself judged by the permutations (minimum p), so that many
    bandwidths cost no level. table: whether MMDAgg rejects at 5 %, and the kernel that shows most.
    Constant, equal runs have p-value 1.
    Source: Schrab et al. 2023 (MMDAgg, arXiv:2110.15073); minimum p: Ribero et al. 2026 (arXiv:2601.19755).
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
    unlearned: Float64,
    retrained: Float64,
    *,
    n_bandwidths: int = 5,
    n_permutations: int = 499,
    seed: int = 0,
) -> MetricResult:
    """Return the p-value of the same hypothesis by MMD-FUSE, in (0, 1]: a soft maximum over normalised statistics.

    Arguments and errors as for `mmd_aggregated`. Runs that are all equal have p-value 1.
    Source: Biggs, Schrab and Gretton 2023 (arXiv:2306.08777).
    """
    u, r = unlearned, retrained
    labels = permuted_labels(np.concatenate((u, r)), len(u), n_permutations=n_permutations, seed=seed)
    fused = fused_statistics(np.concatenate((u, r)), labels, n_bandwidths=n_bandwidths)[1]
    reached = fused >= fused[0] - SAME * abs(fused[0])
    return MetricResult(float(reached.mean()), table={"fused": float(fused[0])})


def fused_statistics(pool: Float64, labels: Bool, *, n_bandwidths: int) -> tuple[Float64, Float64]:
    """Return the normalised statistics (n_kernels, n_labels), Laplace kernels first, and their log mean exp "
    "(n_labels,).

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
        "statistics. "
        "MMDAgg's program uses a wild bootstrap for equal numbers of models, which pairs them by position; here labels "
        "are permuted. Ties are counted against rejection and not broken at random."
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
        "The paper multiplies by the root of n (n - 1), the program by n (n - 1), which is nearer to a maximum; "
        "this is "
        "the program's."
    ),
)
