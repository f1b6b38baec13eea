"""The share of forget examples that a support vector classifier does not call members."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from lethe.metrics.attacks.member_share import ShadowParameters, shadow_part, svc_member_share
from lethe.metrics.attacks.prediction_features import (
    confidence,
    correctness,
    entropy,
    modified_entropy,
    modified_entropy_published,
)
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.processors import in_threads
from lethe.metrics.core.registry import Feature, Parameters

FeatureName = Literal["correctness", "confidence", "entropy", "m_entropy", "m_entropy_published", "prob"]
FEATURES: dict[str, Callable[[Float64, Int64], Float64]] = {
    "correctness": correctness,
    "confidence": confidence,
    "entropy": lambda probabilities, _labels: entropy(probabilities),
    "m_entropy": modified_entropy,
    "m_entropy_published": modified_entropy_published,
    "prob": lambda probabilities, _labels: probabilities,
}
_SETS = ("forget", "test", "retain")


class EfficacyParameters(ShadowParameters):
    """feature: of the predictions; "m_entropy_published" is SalUn's, which is not modified entropy."""

    feature: FeatureName = "confidence"


class ConfidenceParameters(Parameters):
    """max_rows: at most so many retain and so many test examples train an attack. max_models: the first so many runs.

    seed: draws the examples. An attack takes about a second, and every model has its own.
    """

    max_rows: int = Field(5000, ge=2)
    max_models: int = Field(8, ge=1)
    seed: int = Field(0, ge=0)


def efficacies(*arrays: Any, feature: str, n_models: int, shadow_rows: int, seed: int) -> Float64:
    """Return 1 - the share of forget examples called members, by model, shape (at most n_models,), in [0, 1].

    arrays: probabilities of the forget, test and retain sets, shape (n_models, n_examples, n_classes) each, then their
    labels, shape (n_examples,) each. Equally many retain and test examples are used, as in the program.
    """
    sets = list(zip(arrays[:3], arrays[3:], strict=True))
    models = range(min(n_models, len(arrays[0])))
    seen = ([FEATURES[feature](rows[model], labels) for rows, labels in sets] for model in models)
    return _efficacies(seen, n_rows=max(1, shadow_rows // 2), seed=seed)


def confidence_efficacies(*arrays: Float64, max_rows: int, max_models: int, seed: int) -> Float64:
    """Return the same on the probability of the true class, which needs no other: shape (at most max_models,).

    arrays: this probability on the forget, test and retain sets, shape (n_models, n_examples) each.
    """
    models = zip(*(rows[:max_models] for rows in arrays), strict=True)
    return _efficacies(models, n_rows=max_rows, seed=seed)


def _efficacies(models: Iterable[Sequence[Float64]], *, n_rows: int, seed: int) -> Float64:
    """Return the efficacy of every model from the attack's features of its forget, test and retain examples."""

    def efficacy(model: Sequence[Float64]) -> float:
        forget, test, retain = model
        size = min(n_rows, len(retain), len(test))
        members, others = shadow_part(retain, size, seed=seed), shadow_part(test, size, seed=seed)
        return 1.0 - svc_member_share(members, others, forget)

    return np.array(in_threads(efficacy, models), np.float64)


EFFICACY = Feature(
    "svc_efficacy",
    efficacies,
    tuple(f"{part}_probabilities" for part in _SETS),
    tuple(f"{part}_labels" for part in _SETS),
    ("feature", "n_models", "shadow_rows", "seed"),
)
CONFIDENCE_EFFICACY = Feature(
    "svc_confidence_efficacy",
    confidence_efficacies,
    tuple(f"{part}_probability" for part in _SETS),
    parameters=("max_rows", "max_models", "seed"),
)
