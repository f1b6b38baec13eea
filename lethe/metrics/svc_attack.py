"""The confidence attack by a support vector machine that trains on retain and test examples."""

from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.arrays import Float64, shares
from lethe.metrics.processors import map_models
from lethe.metrics.registry import Feature, Parameters


class SvcParameters(Parameters):
    """max_rows: at most so many retain and so many test examples train an attack. max_models: the first so many runs.

    An attack takes about a second, and every model has its own.
    """

    max_rows: int = Field(5000, ge=2)
    max_models: int = Field(8, ge=1)


def confidence_efficacy(
    retain: npt.ArrayLike, test: npt.ArrayLike, forget: npt.ArrayLike, *, max_rows: int, max_models: int
) -> Float64:
    """Return, per model, the share of forget examples that the attack calls no members, shape (n_attacked,).

    The first max_models models are attacked. retain, test, forget: probability of the true class, shapes
    (n_models, n) each with its own n. The attack is scikit-learn's SVC(C=3, gamma="auto", kernel="rbf"), trained on
    retain (member) and test of equal number.
    Source: Fan et al. 2024 (SalUn), MIA-efficacy on confidence.
    """
    axes = ("models", "examples")
    parts = [shares(p, axes=axes, name="probabilities", side="a side's")[:max_models] for p in (retain, test, forget)]
    rows = min(parts[0].shape[1], parts[1].shape[1], max_rows)
    models = list(zip(*parts, strict=True))
    return np.array(map_models(lambda m: _one_model(m[0][:rows], m[1][:rows], m[2]), models), np.float64)


def _one_model(retain: Float64, test: Float64, forget: Float64) -> float:
    from sklearn.svm import SVC  # noqa: PLC0415  slow to import, needed here alone

    attack: Any = SVC(C=3, gamma="auto", kernel="rbf")
    attack.fit(np.concatenate([retain, test])[:, None], np.repeat([1, 0], retain.size))
    return 1.0 - float(attack.predict(forget[:, None]).mean())


SVC_CONFIDENCE = Feature(
    "svc confidence efficacy",
    confidence_efficacy,
    ("retain_probability", "test_probability", "forget_probability"),
    parameters=("max_rows", "max_models"),
)
