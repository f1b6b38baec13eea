"""Attacks on the entropy of a model's predictions: learned from retain and test examples, applied to the forget set."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.attacks.member_share import ShadowParameters, logistic_member_share, shadow_part, svc_member_share
from lethe.metrics.attacks.prediction_features import entropy
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.processors import in_threads
from lethe.metrics.core.registry import Direction, Feature, Metric, Resampling, both_sides
from lethe.metrics.core.run_means import mean_of_runs

Classifier = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], float]


def _shares(
    classifier: Classifier,
    forget: Float64,
    test: Float64,
    retain: Float64,
    *,
    n_models: int,
    shadow_rows: int,
    seed: int,
) -> Float64:
    half = max(1, shadow_rows // 2)

    def share(model: int) -> float:
        members, others = (shadow_part(entropy(rows[model]), half, seed=seed) for rows in (retain, test))
        return classifier(members, others, entropy(forget[model]))

    return np.array(in_threads(share, range(min(n_models, len(forget)))))


def svc_shares(
    forget: Float64, test: Float64, retain: Float64, *, n_models: int, shadow_rows: int, seed: int
) -> Float64:
    """Return the share of forget examples called members, by model, shape (at most n_models,), in [0, 1].

    forget, test, retain: probabilities, shape (n_models, n_examples, n_classes) each.
    """
    return _shares(svc_member_share, forget, test, retain, n_models=n_models, shadow_rows=shadow_rows, seed=seed)


def logistic_shares(
    forget: Float64, test: Float64, retain: Float64, *, n_models: int, shadow_rows: int, seed: int
) -> Float64:
    """Return the same shares by logistic regression."""
    return _shares(logistic_member_share, forget, test, retain, n_models=n_models, shadow_rows=shadow_rows, seed=seed)


_ARRAYS = ("forget_probabilities", "test_probabilities", "retain_probabilities")
_PARAMETERS = ("n_models", "shadow_rows", "seed")
SVC_SHARE = Feature("svc_entropy_share", svc_shares, _ARRAYS, parameters=_PARAMETERS)
LOGISTIC_SHARE = Feature("logistic_entropy_share", logistic_shares, _ARRAYS, parameters=_PARAMETERS)


MIA_SVC_ENTROPY = Metric(
    id="mia_svc_entropy",
    title="Entropy attack, support vectors",
    function=mean_of_runs,
    needs=both_sides(SVC_SHARE, retrained_optional=True),
    unit="share of the forget set",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=ShadowParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Golatkar et al. 2020 (2003.02960), program",
    formula="mean_x [SVC(H(p(x))) = member], trained on the entropies of retain (1) and test (0) examples",
)


SSD_LR = replace(
    MIA_SVC_ENTROPY,
    id="ssd_lr",
    title="Entropy attack, logistic regression",
    function=mean_of_runs,
    needs=both_sides(LOGISTIC_SHARE, retrained_optional=True),
    source="Foster et al. 2024 (2308.07707), program, metrics.py",
    formula="mean_x [LR(H(p(x))) = member], balanced class weights, trained on retain (1) and test (0) examples",
    paper_and_code="The program asks for multi_class='multinomial', which scikit-learn 1.8 no longer has; for two "
    "classes the default is used.",
)
