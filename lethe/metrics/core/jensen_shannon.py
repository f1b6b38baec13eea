"""The entropy of predictions, and the Jensen-Shannon divergence between them."""

import numpy as np

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.compiled import compiled


@compiled
def jensen_shannon(first: Float64, second: Float64) -> Float64:
    """Return the divergence of every pair of rows in base 2, shape (n_rows,), in [0, 1].

    first, second: probabilities, shape (n_rows, n_classes) each; 0 log 0 is 0.
    """
    result = np.empty(first.shape[0], np.float64)
    for row in range(first.shape[0]):
        total = 0.0
        for c in range(first.shape[1]):
            p, q = first[row, c], second[row, c]
            middle = 0.5 * (p + q)
            if p > 0.0:
                total += p * np.log2(p / middle)
            if q > 0.0:
                total += q * np.log2(q / middle)
        result[row] = min(max(0.5 * total, 0.0), 1.0)
    return result


@compiled
def row_entropies(probabilities: Float64) -> Float64:
    """Return the entropy of every row in nats, shape (n_rows,); 0 log 0 is 0.

    probabilities: shape (n_rows, n_classes).
    """
    result = np.empty(probabilities.shape[0], np.float64)
    for row in range(probabilities.shape[0]):
        total = 0.0
        for c in range(probabilities.shape[1]):
            p = probabilities[row, c]
            if p > 0.0:
                total -= p * np.log(p)
        result[row] = total
    return result


@compiled
def mean_divergence(first: Float64, second: Float64, first_entropy: Float64, second_entropy: Float64) -> float:
    """Return the mean over rows of the divergence in base 2, from the entropy of the middle and those of both.

    first, second: probabilities, shape (n_rows, n_classes). The entropies, shape (n_rows,), are of their rows.
    """
    total = 0.0
    for row in range(first.shape[0]):
        entropy = 0.0
        for c in range(first.shape[1]):
            middle = 0.5 * (first[row, c] + second[row, c])
            if middle > 0.0:
                entropy -= middle * np.log(middle)
        total += max(entropy - 0.5 * (first_entropy[row] + second_entropy[row]), 0.0)
    return float(total / first.shape[0] / np.log(2.0))
