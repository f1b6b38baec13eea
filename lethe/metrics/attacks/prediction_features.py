"""What membership attacks look at in a model's probabilities: confidence, correctness, entropy, modified entropy."""

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
SMALLEST = 1e-30  # the logarithm of a smaller probability is that of this one


def confidence(probabilities: Float64, labels: Int64) -> Float64:
    """Return the probability of the label, shape (n_examples,).

    probabilities: shape (n_examples, n_classes). labels: shape (n_examples,), class numbers. So for all below.
    """
    return np.asarray(probabilities[np.arange(labels.size), labels], dtype=np.float64)


def correctness(probabilities: Float64, labels: Int64) -> Float64:
    """Return 1.0 where the label is the likeliest class, else 0.0, shape (n_examples,)."""
    return np.asarray(probabilities.argmax(axis=1) == labels, dtype=np.float64)


def entropy(probabilities: Float64) -> Float64:
    """Return the entropy of each row in nats, shape (n_examples,)."""
    return np.asarray((probabilities * _negative_log(probabilities)).sum(axis=1), dtype=np.float64)


def modified_entropy(probabilities: Float64, labels: Int64) -> Float64:
    """Return -(1 - p_y) log p_y - sum over other classes of p_c log(1 - p_c), in nats, shape (n_examples,).

    Source: Song and Mittal 2021 (arXiv:2003.10595), equation 6.
    """
    rows = np.arange(labels.size)
    complement = 1 - probabilities
    weights, terms = probabilities.copy(), _negative_log(complement)
    weights[rows, labels] = complement[rows, labels]
    terms[rows, labels] = _negative_log(probabilities[rows, labels])
    return np.asarray((weights * terms).sum(axis=1), dtype=np.float64)


def modified_entropy_published(probabilities: Float64, labels: Int64) -> Float64:
    """Return what the program of SalUn computes under that name, shape (n_examples,); it is not modified entropy.

    It exchanges p and 1 - p in the columns of *all* labels that occur, in every row, and takes log p of every class
    where log(1 - p) belongs. So the value of an example depends on the labels of the others.
    Source: Fan et al. 2024 (arXiv:2310.12508), OPTML-Group/Unlearn-Saliency, evaluation/SVC_MIA.py.
    """
    weights = probabilities.copy()
    present = np.unique(labels)
    weights[:, present] = 1 - probabilities[:, present]
    logarithms = np.log(np.where(probabilities > 0, probabilities, SMALLEST))  # here only 0 is replaced
    return np.asarray(-(weights * logarithms).sum(axis=1), dtype=np.float64)


def _negative_log(probabilities: Float64) -> Float64:
    return np.asarray(-np.log(np.maximum(probabilities, SMALLEST)))
