"""ZRF as its published program computes it."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lethe.metrics import zrf
from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import Float64
from lethe.metrics.registry import Feature, Need


def zrf_published_per_model(unlearned: npt.ArrayLike, untrained: npt.ArrayLike) -> Float64:
    """Return 1 - (KL(m || p) + KL(m || q)) / 2 averaged over examples and classes, shape (n_models,), in nats.

    m is the mean of the two predictions p and q. Arguments and errors as for `zrf_per_model`. -inf where a
    probability is 0 and the other is not.
    Source: the program of Chundawat et al. 2023, metrics.py.
    """
    p, q = zrf.checked_zrf_inputs(unlearned, untrained)
    with np.errstate(divide="ignore"):
        q_logs = np.log(q)
        p_logs = (np.log(model) for model in p)
        means = [
            [_divergence(model, network, log, q_log) for network, q_log in zip(q, q_logs, strict=True)]
            for model, log in zip(p, p_logs, strict=True)
        ]
    return np.asarray(1.0 - np.asarray(means, np.float64).mean(axis=1))


def published_divergence(first: Float64, second: Float64) -> float:
    """Return the divergence that the program calls Jensen-Shannon: reversed, and divided by the number of classes."""
    with np.errstate(divide="ignore"):
        return _divergence(first, second, np.log(first), np.log(second))


def _divergence(first: Float64, second: Float64, first_log: Float64, second_log: Float64) -> float:
    middle = (first + second) / 2.0
    with np.errstate(divide="ignore"):
        middle_log = np.log(middle)
    return 0.5 * _mean_kl(middle, middle_log, first_log) + 0.5 * _mean_kl(middle, middle_log, second_log)


def _mean_kl(middle: Float64, middle_log: Float64, other_log: Float64) -> float:
    with np.errstate(invalid="ignore"):
        terms = middle * (middle_log - other_log)
    return float(np.where(middle > 0.0, terms, 0.0).mean())


_FEATURE = Feature(
    "zrf published",
    zrf_published_per_model,
    arrays=("forget_probabilities",),
    shared=("random_forget_probabilities",),
)

METRIC = replace(
    zrf.METRIC,
    id="zrf_published",
    title="ZRF as published",
    needs={"unlearned": Need(_FEATURE), "retrained": Need(_FEATURE, Side.RETRAINED)},
    unit="at most 1",
    bounds=(float("-inf"), 1.0),
    formula="1 - mean over examples and classes of ( m (log m - log p) + m (log m - log q) ) / 2, m = (p + q) / 2",
    paper_and_code=(
        "The paper says Jensen-Shannon; the program's divergence is reversed and divided by the number of classes, so "
        "its values lie near 1 for every model and grow with the number of classes. Infinite where a probability is 0."
    ),
)
