"""Made-up outputs of small networks, for tests of metrics."""

from typing import Any

import numpy as np

from lethe.metrics import Inputs
from lethe.metrics.core.derived_arrays import log_margin
from lethe.metrics.forgetting.probes import ATTACKS

N_MODELS, N_FORGET, N_TEST, N_RETAIN, N_CLASSES = 8, 30, 40, 40, 4
SIZES = {"forget": N_FORGET, "test": N_TEST, "retain": N_RETAIN}
Arrays = dict[str, Any]


def split_arrays() -> Arrays:
    """Return what belongs to the split: labels, untrained networks, radii, models of other recipes."""
    rng = np.random.default_rng(0)
    labels = {f"{part}_labels": rng.integers(0, N_CLASSES, size) for part, size in SIZES.items()}
    untrained = 0.1 * rng.normal(size=(2, N_FORGET, N_CLASSES))
    recipes = {
        "recipe_confidences": rng.normal(size=(2, 4, N_FORGET)),
        "recipe_test_accuracy": rng.uniform(size=(2, 4)),
        "recipe_settings": np.array([[15.0, 0.0, 64.0, 0.0], [20.0, 5e-4, 64.0, 1.0]]),
    }
    shared = {"random_forget_logits": untrained, "perturbation_radii": np.array([0.0, 0.1])}
    return labels | shared | recipes


def side_arrays(seed: int, *, n_models: int = N_MODELS, known: float = 2.0) -> Arrays:
    """Return the arrays of one side. known: how strongly the forget set is recognised."""
    rng = np.random.default_rng(seed)
    labels = split_arrays()
    strengths = {"forget": known, "test": 2.0, "retain": 4.0}
    arrays: Arrays = {}
    for part, size in SIZES.items():
        outputs = np.random.default_rng(size).normal(size=(size, N_CLASSES)) + rng.normal(
            size=(n_models, size, N_CLASSES)
        )
        outputs[:, np.arange(size), labels[f"{part}_labels"]] += strengths[part]
        arrays[f"{part}_logits"] = outputs
    for part in ("retain", "test"):
        right = arrays[f"{part}_logits"].argmax(axis=2) == labels[f"{part}_labels"]
        arrays[f"{part}_accuracy"] = right.mean(axis=1)
    arrays["confidences"] = log_margin(arrays["forget_logits"], labels["forget_labels"])
    arrays["epsilon"] = rng.gamma(1.0, size=N_FORGET)
    arrays["wall_time_s"] = rng.uniform(1.0, 2.0, n_models)
    arrays["noise_alignment"] = rng.normal(size=(n_models, N_FORGET))
    arrays["relearn_epochs"] = rng.integers(1, 20, 4)
    arrays["attacked_knowledge"] = rng.uniform(size=(4, len(ATTACKS)))
    arrays["loss_barrier"] = rng.uniform(size=4)
    arrays["perturbed_accuracy"] = rng.uniform(size=(4, 2, N_FORGET))
    return arrays


def sides() -> dict[str, Arrays]:
    """Return unlearned, retrained, oracle and one original model that knows the forget set."""
    return {
        "unlearned": side_arrays(1, known=2.5),
        "retrained": side_arrays(2),
        "oracle": side_arrays(3),
        "original": side_arrays(4, n_models=1, known=4.0),
    }


def inputs(**changed: Arrays) -> Inputs:
    """Return inputs of all sides, with sides replaced by name."""
    return Inputs(**{**sides(), **changed}, shared=split_arrays())
