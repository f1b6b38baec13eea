"""Distances and kernels between runs, and the mean discrepancies (MMD) that are made of them."""

from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from lethe.metrics.core.arrays import Float64

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
