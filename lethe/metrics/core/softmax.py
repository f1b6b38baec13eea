"""From network outputs to probabilities, losses, margins, entropies and divergences, in float64, model by model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.compiled import compiled
from lethe.metrics.core.processors import in_threads


def softmax(logits: npt.ArrayLike) -> Float64:
    """Return the probabilities of the last axis, same shape."""
    values = np.asarray(logits)
    result = np.empty(values.shape, np.float64)
    _of_each_model(values, result, _softmax_of_rows)
    return result


def log_margin(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Float64:
    """Return log(p / (1 - p)) of the labels: their output minus the logsumexp of the others, shape (..., n_examples).

    logits: shape (..., n_examples, n_classes). labels: shape (n_examples,), class numbers.
    """
    values = np.asarray(logits)
    classes = np.ascontiguousarray(labels, np.int64)
    result = np.empty(values.shape[:-1], np.float64)
    _of_each_model(values, result, lambda model: _margin_of_rows(model, classes))
    return result


def loss_of_logits(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Float64:
    """Return the cross-entropy of the labels in nats, shape (..., n_examples).

    logits: shape (..., n_examples, n_classes). labels: shape (n_examples,), class numbers.
    """
    return np.asarray(np.logaddexp(0.0, -log_margin(logits, labels)))


def _of_each_model(values: npt.NDArray[Any], result: Float64, function: Callable[[Float64], Float64]) -> None:
    """Write function(outputs) of every model into its place of the result; no copy of all models is made."""

    def compute(part: tuple[int, ...]) -> None:
        result[part] = function(np.ascontiguousarray(values[part], np.float64))

    in_threads(compute, np.ndindex(values.shape[:-2]))


@compiled
def _softmax_of_rows(values: Float64) -> Float64:
    n_rows, n_classes = values.shape
    result = np.empty((n_rows, n_classes), np.float64)
    for row in range(n_rows):
        largest = values[row, 0]
        for c in range(1, n_classes):
            largest = max(largest, values[row, c])
        total = 0.0
        for c in range(n_classes):
            result[row, c] = np.exp(values[row, c] - largest)
            total += result[row, c]
        for c in range(n_classes):
            result[row, c] /= total
    return result


@compiled
def _margin_of_rows(values: Float64, labels: Int64) -> Float64:
    n_rows, n_classes = values.shape
    result = np.empty(n_rows, np.float64)
    for row in range(n_rows):
        label = labels[row]
        largest = -np.inf
        for c in range(n_classes):
            if c != label:
                largest = max(largest, values[row, c])
        total = 0.0
        for c in range(n_classes):
            if c != label:
                total += np.exp(values[row, c] - largest)
        result[row] = values[row, label] - (largest + np.log(total))
    return result


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
