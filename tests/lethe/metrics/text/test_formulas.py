"""The formulas of answers: hand-worked values, extremes, and what they refuse."""

import math

import numpy as np
import pytest
from scipy.stats import hmean
from sklearn.metrics import roc_auc_score

from lethe.metrics import InvalidMetricInput
from lethe.metrics.text.answers import (
    answer_probabilities,
    closer_to_one,
    exact_memorization_shares,
    extraction_strengths,
    logit_scaled,
    option_probabilities,
    right_share,
    truth_preferred,
    truth_ratios,
)
from lethe.metrics.text.mia_text import (
    attack_auc,
    compressed_sizes,
    min_k_plus_plus_scores,
    min_k_scores,
    privacy_leakage_from_auc,
    zlib_scores,
)
from lethe.metrics.text.tofu import harmonic_mean, ks_p_value, log10_p

LN2, LN4 = math.log(2), math.log(4)


def test_truth_ratio_of_both_means() -> None:
    right, wrong = np.array([LN2]), np.array([[LN2, 3 * LN2]])
    assert truth_ratios(right, wrong, mean="geometric")[0] == pytest.approx(0.5)
    assert truth_ratios(right, wrong, mean="arithmetic")[0] == pytest.approx((0.5 + 0.125) / 2 / 0.5)


def test_truth_ratio_of_improbable_answers_is_finite() -> None:
    right, wrong = np.array([2000.0, 2000.0]), np.array([[2001.0], [1000.0]])
    for mean in ("geometric", "arithmetic"):
        ratios = truth_ratios(right, wrong, mean=mean)
        assert ratios[0] == pytest.approx(math.exp(-1))
        assert np.isfinite(closer_to_one(ratios)).all()
    assert option_probabilities(right, wrong) == pytest.approx([1 / (1 + math.exp(-1)), 0.0], abs=1e-300)


def test_truth_ratio_scales() -> None:
    ratios = np.array([0.25, 1.0, 4.0])
    assert closer_to_one(ratios).tolist() == [0.25, 1.0, 0.25]
    assert truth_preferred(ratios).tolist() == [0.75, 0.0, 0.0]


def test_option_probability_is_a_share() -> None:
    assert option_probabilities(np.array([LN2]), np.array([[LN4, LN4]]))[0] == pytest.approx(0.5)
    assert right_share(np.array([LN2]), np.array([[LN2, LN2]]))[0] == pytest.approx(0.5)


def test_logit_scaled_is_the_logit_of_the_probability() -> None:
    loss = np.array([0.01, 1.0, 50.0])
    p = answer_probabilities(loss)
    assert logit_scaled(loss) == pytest.approx(np.log(p / (1 - p)))
    assert np.isfinite(logit_scaled(np.array([0.0, 5000.0]))).all()


@pytest.mark.parametrize("bad", [math.inf, math.nan, -math.inf])
def test_losses_must_be_finite(bad: float) -> None:
    with pytest.raises(InvalidMetricInput, match=r"`answer_loss` at \[1\] is .* must be finite"):
        answer_probabilities([1.0, bad])


def test_losses_must_fit_together() -> None:
    with pytest.raises(InvalidMetricInput, match=r"shape \(3, 2\), right ones \(2,\)"):
        truth_ratios(np.ones(2), np.ones((3, 2)))
    with pytest.raises(InvalidMetricInput, match="holds no example"):
        answer_probabilities([])


def test_harmonic_mean_of_a_zero_is_zero() -> None:
    parts = [0.2, 0.5, 1.0]
    assert harmonic_mean(parts) == pytest.approx(hmean(parts))
    assert harmonic_mean([0.0, 1.0]) == 0.0


@pytest.mark.parametrize("parts", [[], [math.nan, 1.0], [-0.1, 1.0]])
def test_harmonic_mean_refuses(parts: list[float]) -> None:
    with pytest.raises(InvalidMetricInput, match="harmonic mean"):
        harmonic_mean(parts)


def test_ks_is_exact_and_ignores_orientation() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.lognormal(size=40), rng.lognormal(0.6, size=40)
    assert ks_p_value(a, b) == pytest.approx(ks_p_value(1 / a, 1 / b))
    # 40 and 40 wholly apart: 2 of C(80, 40) orders
    assert ks_p_value(np.arange(40), np.arange(40) + 100) == pytest.approx(2 / math.comb(80, 40))


def test_log10_p_of_zero_is_finite() -> None:
    assert log10_p(0.0) == pytest.approx(-307.65, abs=0.01)


def test_memorized_tokens_leave_out_the_end() -> None:
    correct = np.array([[True, False, True, True], [False, False, False, False]])
    n_tokens = np.array([5, 3])
    assert exact_memorization_shares(correct, n_tokens).tolist() == [0.75, 0.0]
    assert extraction_strengths(correct, n_tokens).tolist() == [0.5, 0.5]


def test_extraction_strength_of_a_known_answer_is_one() -> None:
    assert extraction_strengths(np.ones((1, 3), bool), np.array([4])).tolist() == [1.0]


def test_memorized_tokens_name_an_empty_answer() -> None:
    with pytest.raises(InvalidMetricInput, match="answer 1 is empty"):
        exact_memorization_shares(np.ones((2, 3), bool), np.array([4, 1]))


def test_min_k_takes_the_least_likely_tokens() -> None:
    log_p = np.array([[-1.0, -9.0, -3.0, -2.0, 0.0], [-4.0, -2.0, 0.0, 0.0, 0.0]])
    scores = min_k_scores(log_p, np.array([5, 3]), share=0.5)
    assert scores.tolist() == [6.0, 4.0]


def test_min_k_plus_plus_standardises() -> None:
    log_p, mean, variance = np.array([[-5.0, -2.0]]), np.array([[-3.0, -2.0]]), np.array([[4.0, 0.0]])
    assert min_k_plus_plus_scores(log_p, mean, variance, np.array([3]), share=0.5).tolist() == [1.0]


def test_min_k_refuses_a_share_of_nothing() -> None:
    with pytest.raises(InvalidMetricInput, match="share of tokens is 0"):
        min_k_scores(np.zeros((1, 2)), np.array([3]), share=0)


def test_auc_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    forget, holdout = rng.integers(0, 6, 30), rng.integers(1, 8, 25)
    expected = roc_auc_score([0] * 30 + [1] * 25, np.concatenate([forget, holdout]))
    assert attack_auc(forget, holdout) == pytest.approx(expected, abs=1e-14)


def test_zlib_scores() -> None:
    sizes = compressed_sizes(["a" * 500, "ab"])
    assert sizes[0] < 30
    assert zlib_scores(np.array([2.0, 2.0]), np.array([4, 8])).tolist() == [0.5, 0.25]


def test_privacy_leakage_of_equal_aucs_is_zero() -> None:
    assert privacy_leakage_from_auc(0.7, 0.7) == 0.0
    assert privacy_leakage_from_auc(1.0, 0.5) == pytest.approx(-100)
