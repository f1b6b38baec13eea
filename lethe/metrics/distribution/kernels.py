"""Distances and kernels between runs, and mean discrepancies (MMD), of the given labels and of permuted ones."""

from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from lethe.metrics.core.arrays import Bool, Float64
from lethe.metrics.core.run_order import order_of_runs

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
