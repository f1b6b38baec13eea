"""How far a metric moves when other models are drawn: the delete-half jackknife over models.

Every replicate leaves out a random half of the models and repeats none. The spread of the replicates times
sqrt((N - d) / d), with d of N left out, is the standard error (Shao and Wu 1989); the interval is the value +- 1.96
standard errors, cut off at the metric's bounds.
"""

from collections.abc import Callable, Iterator

import numpy as np

from lethe.metrics.core.arrays import Float64, Int64

MIN_MODELS = 4
NORMAL_QUANTILE_95 = 1.959963984540054
Interval = tuple[float, float]


def kept_models(n_models: int, *, n_resamples: int, seed: int, stream: int = 0) -> Iterator[Int64]:
    """Yield, per replicate, the sorted positions of the models that stay; n_models // 2 are left out.

    stream: sides that are not paired draw from streams of their own.
    """
    rng = np.random.default_rng([seed, n_models, stream])
    for _ in range(n_resamples):
        yield np.sort(rng.permutation(n_models)[n_models // 2 :])


def jackknife_interval(
    value: float, replicates: Float64, *, n_models: int, bounds: Interval = (-np.inf, np.inf)
) -> Interval | None:
    """Return the 95 % interval around the value; None if the value or more than half of the replicates is NaN."""
    known = replicates[np.isfinite(replicates)]
    if not np.isfinite(value) or known.size < 2 or known.size * 2 < replicates.size:
        return None
    left_out = n_models // 2
    reach = NORMAL_QUANTILE_95 * float(np.sqrt((n_models - left_out) / left_out)) * float(known.std(ddof=1))
    return max(bounds[0], value - reach), min(bounds[1], value + reach)


def interval_of_runs(
    value: float, per_run: Float64, *, n_resamples: int, seed: int, bounds: Interval
) -> Interval | None:
    """Return the interval of a mean over runs; None below 4 runs. NaN runs are left out, as in the mean."""
    known = per_run[~np.isnan(per_run)]
    if known.size < MIN_MODELS:
        return None
    kept = kept_models(known.size, n_resamples=n_resamples, seed=seed)
    replicates = np.array([known[rows].mean() for rows in kept])
    return jackknife_interval(value, replicates, n_models=known.size, bounds=bounds)


def interval_of_models(
    value: float,
    compute_metric: Callable[[tuple[Int64, ...]], float],
    *,
    sizes: tuple[int, ...],
    paired: bool,
    n_resamples: int,
    seed: int,
    bounds: Interval,
) -> Interval | None:
    """Return the interval of a metric that is computed again on half of the models of every side.

    compute_metric: from the positions kept, one array per side, to the metric. sizes: models on each side. paired: the
    same positions are kept on all sides, which must be of equal size.
    None if a side has fewer than 4 models.
    """
    if not sizes or min(sizes) < MIN_MODELS:
        return None
    draws = zip(
        *(
            kept_models(size, n_resamples=n_resamples, seed=seed, stream=0 if paired else side)
            for side, size in enumerate(sizes)
        ),
        strict=True,
    )
    replicates = np.array([compute_metric(kept) for kept in draws], np.float64)
    return jackknife_interval(value, replicates, n_models=min(sizes), bounds=bounds)
