"""Samples sorted once per example, and resampled by repeating instead of sorting again."""

from typing import NamedTuple

import numpy as np

from lethe.metrics.core.compiled import jitted
from lethe.metrics.scoring.arrays import Float64, Int64


class SortedSamples(NamedTuple):
    """One side's statistic, sorted per example.

    values: shape (n_examples, n_models), ascending along models.
    order: shape (n_examples, n_models), the model that each value came from.
    """

    values: Float64
    order: Int64


def sorted_values(confidences: Float64) -> Float64:
    """Return the statistic as rows of examples, each ascending: (n_models, n_examples) to (n_examples, n_models)."""
    rows = np.array(confidences.T, order="C")
    rows.sort(axis=1)
    return rows


def sort_samples(confidences: Float64) -> SortedSamples:
    """Return sorted rows and the models they came from; confidences: shape (n_models, n_examples)."""
    rows = np.ascontiguousarray(confidences.T)
    order = np.argsort(rows, axis=1)
    return SortedSamples(np.take_along_axis(rows, order, axis=1), order)


def resampled(samples: SortedSamples, repeats: Int64) -> Float64:
    """Return the sorted rows of the sample that holds model m repeats[m] times; no sorting.

    repeats: shape (n_models,), >= 0. Result: shape (n_examples, sum of repeats), ascending along models.
    """
    return repeat_in_order(samples.values, samples.order, repeats, int(repeats.sum()))


@jitted
def repeat_in_order(values: Float64, order: Int64, repeats: Int64, total: int) -> Float64:
    """Return each sorted value as often as its model is repeated; see `resampled`."""
    n_examples, n_models = values.shape
    result = np.empty((n_examples, total), np.float64)
    for s in range(n_examples):
        end = 0
        for k in range(n_models):
            for _ in range(repeats[order[s, k]]):
                result[s, end] = values[s, k]
                end += 1
    return result
