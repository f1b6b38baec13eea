"""Golden values of the score and of the image metrics: KLOM, tug of war, NoMUS, ZRF, MIAU."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lethe.metrics.accuracy.trade_offs import harmonic_mean, tow_of_differences
from lethe.metrics.attacks.scalar_attack import split_accuracies, stratified_splits
from lethe.metrics.benchmark.rankings import paired_t_of_effect
from lethe.metrics.core.derived_arrays import log_margin, softmax
from lethe.metrics.membership.miau import EQUAL_WEIGHTS, miau
from lethe.metrics.membership.umia import nomus
from lethe.metrics.outputs.histograms import binned_divergence
from lethe.metrics.outputs.predictions import activation_l2, zrf_published_per_model
from lethe.metrics.scoring.arrays import logit_scaled_confidences
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import forgetting_quality, per_example_epsilon
from tests.golden.golden_set import Arrays, GoldenSet

Values = Mapping[str, Any]


def _dm_confidence(arrays: Arrays) -> Values:
    logits, labels = arrays["logits"], arrays["labels"]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
    probability = (exponentials / exponentials.sum(axis=1, keepdims=True))[np.arange(labels.size), labels]
    return {"prob": probability, "confidence": logit_scaled_confidences(logits, labels)}


def _dm_epsilon(arrays: Arrays) -> Values:
    epsilon = per_example_epsilon(arrays["unlearned"], arrays["retrained"], attacks=AttackFamily.REFERENCE)
    return {"epsilon": epsilon, "f": forgetting_quality(epsilon, n_models=arrays["unlearned"].shape[0])}


def _klom(arrays: Arrays) -> Values:
    # published in float32, whose bins differ from those of float64
    margins = {
        side: log_margin(arrays[f"{side}_logits"], arrays["labels"]).astype(np.float32)
        for side in ("oracle", "unlearned")
    }
    oracle, unlearned = margins["oracle"], margins["unlearned"]
    swapped = binned_divergence(oracle, unlearned)
    return {
        "oracle_margins": oracle,
        "unlearned_margins": unlearned,
        "klom": binned_divergence(unlearned, oracle),
        "kl_unlearned_oracle": swapped,
    }


def _tow(arrays: Arrays) -> Values:
    difference = (arrays["unlearned_percent"] - arrays["retrained_percent"]) / 100.0
    return {"tow": tow_of_differences(difference[:, :3])}  # the fourth column is the membership attack


def _nomus(arrays: Arrays) -> Values:
    forget = arrays["forget_losses"].copy()
    np.random.RandomState(42).shuffle(forget)  # the notebook's seed
    size = min(forget.size, arrays["unseen_losses"].size)
    losses = np.concatenate([arrays["unseen_losses"][:size], forget[:size]])
    train, held = stratified_splits(size, n_splits=10, test_share=0.1, seed=0)
    scores = split_accuracies(losses[None], np.repeat([0, 1], size), train, held, solver="lbfgs")
    mia = scores[0].mean()
    found = nomus(arrays["test_accuracy"][None], mia[None])
    return {"mia": mia, "forgetting_score": found.table["forgetting_score"]}


def _zrf(arrays: Arrays) -> Values:
    p, q = (softmax(arrays[f"{side}_logits"])[None] for side in ("unlearned", "teacher"))
    return {"zrf": zrf_published_per_model(p, q)[0], "activation_distance": activation_l2(p, q).value}


def _mubench(arrays: Arrays) -> Values:
    test, forget, original, chance = arrays["dt_df_orig_random"].T
    return {"harmonic_mean": harmonic_mean(1.0 - np.abs(test - original), 1.0 - np.abs(forget - chance))}


def _miau(arrays: Arrays) -> Values:
    tests = [
        paired_t_of_effect(float(mean), float(effect), n_runs=int(arrays["n"]))
        for mean, effect in zip(arrays["mean"], arrays["cohens_d"], strict=True)
    ]
    original, retrained = np.array([[60.0, 55.0, 52.0]]), np.array([[50.0, 50.0, 51.0]])
    one_without_gap = original.copy()
    one_without_gap[0, 1] = retrained[0, 1]
    return {
        "low": [test.interval[0] for test in tests],
        "high": [test.interval[1] for test in tests],
        "p": [test.p_value for test in tests],
        "miau_of_baseline": miau(original, retrained, original, weights=EQUAL_WEIGHTS).value,
        "miau_of_retrain": miau(retrained, retrained, original, weights=EQUAL_WEIGHTS).value,
        "miau_one_task_without_gap": miau(retrained, retrained, one_without_gap, weights=EQUAL_WEIGHTS).value,
    }


IMAGE_METRIC_SETS: dict[str, GoldenSet] = {
    "dm_logit_scaled_confidence": GoldenSet(_dm_confidence),
    "dm_epsilon": GoldenSet(_dm_epsilon),
    "klom": GoldenSet(_klom, float32=frozenset({"oracle_margins", "unlearned_margins"})),
    "rum_tow": GoldenSet(_tow),
    "mufac_nomus": GoldenSet(_nomus),
    "badt_zrf": GoldenSet(
        _zrf, float32=frozenset({"zrf", "activation_distance"}), not_computed=frozenset({"jsdiv_float64"})
    ),
    "mubench_harmonic_mean": GoldenSet(_mubench),
    "miau_anchors": GoldenSet(_miau, p_values=frozenset({"p"})),
}
