"""Attacks on the entropy of a model's predictions: learned from retain and test examples, asked of the forget set."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.arrays import Float64, probability_rows, require_same_models
from lethe.metrics.epsilon.processors import in_threads
from lethe.metrics.member_share import logistic_member_share, shadow_part, svc_member_share
from lethe.metrics.prediction_features import entropy
from lethe.metrics.registry import Feature

Classifier = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], float]


def _shares(
    classifier: Classifier,
    forget: npt.ArrayLike,
    test: npt.ArrayLike,
    retain: npt.ArrayLike,
    *,
    n_models: int,
    shadow_rows: int,
    seed: int,
) -> Float64:
    f, t, r = (
        probability_rows(rows, name=f"{part} probabilities", side="a side's")
        for part, rows in (("forget", forget), ("test", test), ("retain", retain))
    )
    require_same_models(forget=f, test=t, retain=r)
    half = max(1, shadow_rows // 2)

    def share(model: int) -> float:
        members, others = (shadow_part(entropy(rows[model]), half, seed=seed) for rows in (r, t))
        return classifier(members, others, entropy(f[model]))

    return np.array(in_threads(share, range(min(n_models, len(f)))))


def svc_shares(
    forget: npt.ArrayLike, test: npt.ArrayLike, retain: npt.ArrayLike, *, n_models: int, shadow_rows: int, seed: int
) -> Float64:
    """Return the share of forget examples called members, by model, shape (at most n_models,), in [0, 1].

    forget, test, retain: probabilities, shape (n_models, n_examples, n_classes) each.
    """
    return _shares(svc_member_share, forget, test, retain, n_models=n_models, shadow_rows=shadow_rows, seed=seed)


def logistic_shares(
    forget: npt.ArrayLike, test: npt.ArrayLike, retain: npt.ArrayLike, *, n_models: int, shadow_rows: int, seed: int
) -> Float64:
    """Return the same shares by logistic regression."""
    return _shares(logistic_member_share, forget, test, retain, n_models=n_models, shadow_rows=shadow_rows, seed=seed)


_ARRAYS = ("forget_probabilities", "test_probabilities", "retain_probabilities")
_PARAMETERS = ("n_models", "shadow_rows", "seed")
SVC_SHARE = Feature("svc_entropy_share", svc_shares, _ARRAYS, parameters=_PARAMETERS)
LOGISTIC_SHARE = Feature("logistic_entropy_share", logistic_shares, _ARRAYS, parameters=_PARAMETERS)
