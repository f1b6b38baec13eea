"""The published metric, transcribed line by line in plain numpy: slow, and the judge of the fast one.

Nothing is shared with the package under test. Thresholds are enumerated one by one, every rate is a float32 mean of
comparisons, single thresholds come from torch.linspace itself. Where the program stops with an error so does this.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

DELTA = 1e-5
CAP = 50
Array = NDArray[Any]


class AllDiscardedError(Exception):
    """Every attack of an example was discarded: the program's assertion."""


def literal_epsilon(unlearned: Array, retrained: Array) -> float:
    """Return the program's epsilon of one example; two float64 vectors of equal length."""
    positive, negative = (
        (retrained, unlearned) if np.median(retrained) > np.median(unlearned) else (unlearned, retrained)
    )
    range_p = positive.max() - positive.min()
    range_n = negative.max() - negative.min()
    largest = range_p if range_p > range_n else range_n
    smallest = range_n if range_p > range_n else range_p
    if largest > 0 and smallest / largest < 0.01:
        return float(CAP)
    rates = [_interval_rates(positive, negative), _single_rates(positive, negative)]
    fnr, fpr, tpr, tnr = (np.concatenate(parts) for parts in zip(*rates, strict=True))
    return _strongest(fnr, fpr, tpr, tnr)


def _mean(hits: Array) -> Array:
    return _rate(hits.sum(axis=-1), hits.shape[-1])


def _rate(count: Array, n: int) -> Array:
    return np.asarray(count.astype(np.float32) / np.float32(n))


def _interval_rates(positive: Array, negative: Array) -> tuple[Array, ...]:
    width = min(positive.max() - positive.min(), negative.max() - negative.min())
    if positive.max() - positive.min() >= negative.max() - negative.min():
        positive, negative = negative, positive
    low = positive.min() + width - 2.0
    high = positive.max() + 2.0
    rights = np.linspace(low, high, num=int(np.ceil((high - low) * 100)))
    if rights.size == 0:
        raise AllDiscardedError
    lefts = np.linspace(rights - width - 2.0, rights - width + 2.0, num=400, axis=1)

    def predicted(sample: Array) -> Array:
        hits = np.zeros(lefts.shape, np.int32)
        for value in sample:
            hits += (lefts <= value) & (value <= rights[:, None])
        return hits.ravel()

    p, n, size = predicted(positive), predicted(negative), positive.size
    return _rate(size - p, size), _rate(n, size), _rate(p, size), _rate(size - n, size)


def _single_rates(positive: Array, negative: Array) -> tuple[Array, ...]:
    both = torch.from_numpy(np.concatenate([positive, negative]))
    low, high = both.min(), both.max()
    count = int(torch.ceil((high - low) * 100))
    thresholds = torch.linspace(low, high, count).numpy().astype(np.float64)[:, None]
    return (
        _mean(positive < thresholds),
        _mean(negative >= thresholds),
        _mean(positive >= thresholds),
        _mean(negative < thresholds),
    )


def _strongest(fnr: Array, fpr: Array, tpr: Array, tnr: Array) -> float:
    assert fnr.dtype == np.float32
    epsilon = np.zeros(fnr.shape, np.float32)
    epsilon[(fpr + fnr == 0) & (tpr + tnr == 2)] = np.inf
    epsilon[(epsilon == 0) & (fpr * fnr == 0)] = np.nan
    kept = epsilon == 0
    with np.errstate(all="ignore"):
        first = np.log(1 - DELTA - fpr[kept]) - np.log(fnr[kept])
        second = np.log(1 - DELTA - fnr[kept]) - np.log(fpr[kept])
        epsilon[kept] = np.clip(np.fmax(first, second), 0, None)
    epsilon = epsilon[~np.isnan(epsilon)]
    if epsilon.size == 0:
        raise AllDiscardedError
    return float(np.clip(epsilon.max(), 0, CAP))


def literal_forgetting_quality(epsilon: Sequence[float] | Array, n_models: int) -> float:
    """Return F as the program sums it over its buckets."""
    largest = np.ceil(np.log(n_models - 1)) if n_models > 1 else -np.inf
    buckets, start, points = {}, 0.0, 1.0
    while start + 0.5 <= largest:
        buckets[start] = points
        points /= 2
        start += 0.5
    total = 0.0
    for value in epsilon:
        for start, points in buckets.items():
            if value < start + 0.5:
                total += points
                break
    return total / len(epsilon)
