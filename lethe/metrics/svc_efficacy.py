"""The share of forget examples that a support vector classifier does not call members."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from lethe.metrics.arrays import Float64, Int64, class_labels, probability_rows, require_same_models
from lethe.metrics.member_share import ShadowParameters, shadow_part, svc_member_share
from lethe.metrics.prediction_features import (
    confidence,
    correctness,
    entropy,
    modified_entropy,
    modified_entropy_published,
)
from lethe.metrics.processors import map_models
from lethe.metrics.registry import Feature

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


def efficacies(*arrays: npt.ArrayLike, feature: str, n_models: int, shadow_rows: int, seed: int) -> Float64:
    """Return 1 - the share of forget examples called members, by model, shape (at most n_models,), in [0, 1].

    arrays: probabilities of the forget, test and retain sets, shape (n_models, n_examples, n_classes) each, then their
    labels, shape (n_examples,) each. Equally many retain and test examples are used, as in the program.
    """
    rows = {
        part: probability_rows(values, name=f"{part} probabilities", side="a side's")
        for part, values in zip(_SETS, arrays[:3], strict=True)
    }
    require_same_models(**rows)
    labels = {
        part: class_labels(values, n_examples=rows[part].shape[1], n_classes=rows[part].shape[2], name=f"{part} labels")
        for part, values in zip(_SETS, arrays[3:], strict=True)
    }
    size = max(1, min(shadow_rows // 2, rows["retain"].shape[1], rows["test"].shape[1]))

    def efficacy(model: int) -> float:
        forget, test, retain = (FEATURES[feature](rows[part][model], labels[part]) for part in _SETS)
        members, others = shadow_part(retain, size, seed=seed), shadow_part(test, size, seed=seed)
        return 1.0 - svc_member_share(members, others, forget)

    return np.array(map_models(efficacy, range(min(n_models, len(rows["forget"])))))


EFFICACY = Feature(
    "svc_efficacy",
    efficacies,
    tuple(f"{part}_probabilities" for part in _SETS),
    tuple(f"{part}_labels" for part in _SETS),
    ("feature", "n_models", "shadow_rows", "seed"),
)
