"""Definitions against open-unlearning's own values per example (locuslab/open-unlearning, commit d3d7cf9)."""

import json
from pathlib import Path

import numpy as np
import pytest

from lethe.huggingface import answer_scores, answer_sets
from lethe.huggingface.answer_scores import TokenScores
from lethe.huggingface.tofu import UTILITY_PARTS

STORED = Path(__file__).parents[2] / "golden" / "open_unlearning"
VALUES = json.loads((STORED / "values.json").read_text())
LLAMA = VALUES["llama_full"]


@pytest.fixture(scope="module")
def per_example() -> dict[str, np.ndarray]:
    with np.load(STORED / "llama_full.npz") as file:
        return dict(file)


@pytest.mark.parametrize(
    ("metric", "right", "wrong", "aggregate"),
    [
        ("forget_truth_ratio", "forget_Q_A_PARA_Prob", "forget_Q_A_PERT_Prob", "closer_to_1_better"),
        ("retain_Truth_Ratio", "retain_Q_A_PARA_Prob", "retain_Q_A_PERT_Prob", "true_better"),
        ("ra_Truth_Ratio", "ra_Q_A_Prob", "ra_Q_A_PERT_Prob", "true_better"),
        ("wf_Truth_Ratio", "wf_Q_A_Prob", "wf_Q_A_PERT_Prob", "true_better"),
    ],
)
def test_truth_ratio_is_the_authors(per_example, metric, right, wrong, aggregate):
    losses = (per_example[f"{name}/avg_loss"] for name in (right, wrong))
    ratios = answer_scores.truth_ratios(*losses, aggregate=aggregate)
    assert ratios == pytest.approx(per_example[f"{metric}/score"], rel=1e-12)
    assert answer_scores.aggregate_truth_ratios(ratios, aggregate=aggregate) == pytest.approx(LLAMA[metric], rel=1e-12)


def test_truth_ratio_by_probabilities_is_the_authors(per_example):
    losses = (per_example[f"forget_Q_A_{name}_Prob/avg_loss"] for name in ("PARA", "PERT"))
    ratios = answer_scores.truth_ratios(*losses, aggregate="prob_mean")
    wanted = VALUES["llama_full@probmean"]["forget_truth_ratio"]
    assert answer_scores.aggregate_truth_ratios(ratios, aggregate="prob_mean") == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("name", ["ra", "wf"])
def test_normalised_probability_is_the_authors(per_example, name):
    found = answer_scores.normalised_probability(
        per_example[f"{name}_Q_A_Prob/prob"], per_example[f"{name}_Q_A_PERT_Prob/prob"]
    )
    assert found == pytest.approx(per_example[f"{name}_Q_A_Prob_normalised/prob"], rel=1e-12)


def test_model_utility_is_the_authors():
    assert answer_scores.model_utility([LLAMA[part] for part in UTILITY_PARTS]) == pytest.approx(LLAMA["model_utility"])


@pytest.mark.parametrize("attack", ["loss", "zlib", "min_k", "min_k_plus_plus", "gradnorm", "reference"])
def test_area_under_curve_is_the_authors(per_example, attack):
    sides = (per_example[f"mia_{attack}/{side}/score"] for side in ("forget", "holdout"))
    assert answer_sets.area_under_curve(*sides) == pytest.approx(LLAMA[f"mia_{attack}"], abs=1e-12)


def test_privacy_leakage_is_the_authors():
    found = answer_sets.privacy_leakage(LLAMA["mia_min_k"], VALUES["llama_retain"]["mia_min_k"])
    assert found == pytest.approx(LLAMA["privleak"], rel=1e-12)


def test_forget_quality_of_equal_ratios_is_one(per_example):
    ratios = per_example["forget_truth_ratio/score"]
    assert answer_scores.forget_quality(ratios, ratios) == 1
    assert answer_scores.forget_quality(ratios, ratios + 10) < 1e-12


@pytest.mark.parametrize(
    ("correct", "strength"),
    [
        ([True, True, True], 1.0),
        ([False, True, True, True], 0.75),
        ([True, False, True, True], 0.5),
        ([True, True, True, False], 0.25),  # never below 1/n
        ([], 0.0),
    ],
)
def test_extraction_strength_by_hand(correct, strength):
    scores = TokenScores(np.zeros(1), [], [], [], [np.array(correct, bool)])
    assert answer_scores.extraction_strength(scores).tolist() == [strength]
