"""The membership attacks: against scikit-learn, and at their edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import auc
from sklearn.metrics import roc_curve as reference_curve
from sklearn.svm import SVC

from lethe.metrics import InvalidMetricInput
from lethe.metrics.attacks.likelihood_attack import roc_curve
from lethe.metrics.attacks.scalar_attack import (
    attack_accuracy,
    fit_logistic,
    softmax_attack_percent,
    split_accuracies,
    stratified_splits,
)
from lethe.metrics.attacks.svc_efficacy import FEATURES, efficacies, shadow_part, svc_member_share
from lethe.metrics.core.derived_arrays import softmax
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.metric_evaluation import evaluate
from lethe.metrics.membership.lira import lira, online_scores
from lethe.metrics.membership.mia import logistic_shares, svc_shares
from lethe.metrics.membership.umia import distance_from_certainty, indiscernibility
from tests.lethe.metrics.literal_attacks import lira_online

SPLITS = {"n_splits": 10, "test_share": 0.1, "seed": 123}


def gamma(seed: int, shape: float, size: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(shape, size=(3, size))


def test_newton_agrees_with_scikit_learn_but_at_the_threshold():
    values = np.concatenate([gamma(1, 1.0, 150), gamma(2, 1.3, 150)], axis=1)
    labels = np.repeat([0, 1], 150)
    train, held = stratified_splits(150, **SPLITS)
    exact, published = (split_accuracies(values, labels, train, held, solver=solver) for solver in ("newton", "lbfgs"))
    assert np.abs(exact - published).max() <= 1 / held.shape[1] + 1e-12
    assert np.mean(exact == published) > 0.9


def test_separable_losses_are_told_apart():
    accuracy = attack_accuracy(gamma(1, 1.0, 50), 100.0 + gamma(2, 1.0, 60), **SPLITS)
    assert accuracy.tolist() == [1.0, 1.0, 1.0]


def test_huge_losses_do_not_overflow():
    accuracy = attack_accuracy(1e3 * gamma(1, 1.0, 50), 1e3 * gamma(2, 1.2, 50), **SPLITS)
    assert np.isfinite(accuracy).all()


def test_equal_losses_give_one_half():
    assert attack_accuracy(np.ones((2, 25)), np.ones((2, 31)), **SPLITS).tolist() == [0.5, 0.5]


def test_attack_ignores_the_order_of_examples():
    members, others = gamma(1, 1.0, 40), gamma(2, 1.3, 70)
    turned = attack_accuracy(members[:, ::-1], np.roll(others, 7, axis=1), **SPLITS)
    assert turned.tolist() == attack_accuracy(members, others, **SPLITS).tolist()


def test_too_few_examples_are_refused():
    with pytest.raises(InvalidMetricInput, match=r"holds out 0.1 of 10 examples .* at least 6 members"):
        attack_accuracy(np.zeros((1, 5)), np.zeros((1, 50)), **SPLITS)


def test_weights_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    features = rng.dirichlet(np.ones(5), (2, 300))
    features[1, :150, 0] += 0.5
    labels = np.repeat([1.0, 0.0], 150)
    found = fit_logistic(features, labels)
    for weights, rows in zip(found, features, strict=True):
        reference = LogisticRegression(tol=1e-10, max_iter=10_000).fit(rows, labels)
        assert weights == pytest.approx(np.append(reference.coef_[0], reference.intercept_), abs=1e-5)


def softmax_attack(members: np.ndarray, others: np.ndarray) -> np.ndarray:
    return softmax_attack_percent(members, others, task=0, n_splits=2, test_share=0.2, seed=0)


def test_softmax_attack_tells_certain_from_uncertain():
    certain, uncertain = np.zeros((2, 40, 3)), np.full((2, 60, 3), 1.0 / 3.0)
    certain[:, :, 0] = 1.0
    assert softmax_attack(certain, uncertain).tolist() == [100.0, 100.0]


def test_softmax_attack_draws_the_same_for_equal_models_of_a_run():
    rows = np.random.default_rng(0).dirichlet(np.ones(3), (3, 40))
    others = np.random.default_rng(1).dirichlet(np.ones(3), (3, 60))
    first, second = softmax_attack(rows, others), softmax_attack(rows[:1].repeat(3, 0), others[:1].repeat(3, 0))
    assert first[0] == second[0]
    assert len(set(second)) > 1, "copies of one model must draw other splits"


def test_softmax_attack_in_batches_is_the_same(monkeypatch):
    rows = np.random.default_rng(0).dirichlet(np.ones(3), (3, 40))
    others = np.random.default_rng(1).dirichlet(np.ones(3), (3, 60))
    at_once = softmax_attack(rows, others)
    monkeypatch.setattr("lethe.metrics.attacks.scalar_attack.MAX_BATCH", 1)
    assert softmax_attack(rows, others).tolist() == at_once.tolist()


def test_softmax_attack_needs_two_examples_of_each_set():
    rows = np.full((1, 1, 2), 0.5)
    with pytest.raises(InvalidMetricInput, match="at least 2 examples of each set, not 1"):
        softmax_attack(rows, np.full((1, 9, 2), 0.5))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 200), st.integers(1, 50))
def test_curve_equals_that_of_scikit_learn(seed, n_scores, n_levels):
    rng = np.random.default_rng(seed)
    scores, members = rng.integers(0, n_levels, n_scores) / 7.0, rng.random(n_scores) < 0.5
    members[:2] = True, False
    false_rate, true_rate, _ = reference_curve(members, scores)
    curve = roc_curve(scores, members)
    assert curve.false_positive_rate.tolist() == false_rate.tolist()
    assert curve.true_positive_rate.tolist() == true_rate.tolist()
    assert curve.area == auc(false_rate, true_rate)


def test_equal_scores_are_at_chance():
    curve = roc_curve(np.zeros(10), np.arange(10) < 5)
    assert (curve.area, curve.accuracy, curve.true_positive_rate_below(0.5)) == (0.5, 0.5, 0.0)


def test_low_rate_is_read_before_the_first_false_alarm():
    curve = roc_curve(np.array([5.0, 4.0, 3.0, 2.0]), np.array([True, True, False, True]))
    assert curve.true_positive_rate_below(0.001) == 2 / 3


def test_scores_of_one_kind_are_refused():
    with pytest.raises(InvalidMetricInput, match="members and non-members"):
        roc_curve(np.arange(3.0), np.ones(3, dtype=bool))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1])
def test_false_positive_rate_outside_its_range_is_refused(rate):
    with pytest.raises(InvalidMetricInput, match="within"):
        roc_curve(np.arange(2.0), np.array([True, False])).true_positive_rate_below(rate)


ACCURACIES = arrays(np.float64, st.integers(1, 20), elements=st.floats(0, 1))


@given(st.floats(0, 1))
def test_indiscernibility_does_not_know_the_side_of_chance(accuracy):
    assert distance_from_certainty(accuracy) == pytest.approx(distance_from_certainty(1.0 - accuracy), abs=1e-12)


def test_indiscernibility_is_the_mean_over_models_not_of_the_mean():
    assert indiscernibility(np.array([0.25, 0.75])).value == 0.5


def test_umia_is_evaluated_from_confidences_and_losses():
    rng = np.random.default_rng(0)
    sides = {
        name: {"confidences": rng.normal(3, 2, (5, 40)), "test_loss": rng.gamma(1, 1, (5, 60))}
        for name in ("unlearned", "retrained", "oracle", "original")
    }
    found = evaluate(Inputs(**sides), ["umia", "indiscernibility", "consistent_unforgettability", "ulira_split"])
    assert [entry.not_computed for entry in found.values()] == [""] * 4
    assert all(entry.oracle is not None and entry.original is not None for entry in found.values())
    assert found["umia"].result.interval is not None


def draw(seed: int, shift: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    keep = np.argsort(rng.random((20, 15)), axis=0) < 10
    scores = rng.normal(0, 1, (20, 15, 2)) + shift * keep[:, :, None]
    return scores[:-3], keep[:-3], scores[-3:], keep[-3:]


def test_online_attack_equals_a_loop_over_examples():
    shadows, keep, targets, answers = draw(1)
    n = min(keep.sum(axis=0).min(), (~keep).sum(axis=0).min())
    # the program uses equally many models of every example; a table where they are equal makes both the same
    keep = np.zeros_like(keep)
    keep[:n] = True
    result = lira(shadows, keep, targets, answers)
    area, accuracy = lira_online(shadows, keep, targets, answers)
    assert result.value == pytest.approx(area, abs=1e-12)
    assert result.table["accuracy"] == pytest.approx(accuracy, abs=1e-12)


@pytest.mark.parametrize("attack", ["online", "online_fixed", "offline", "offline_fixed", "threshold"])
def test_every_attack_finds_members_that_stand_out(attack):
    assert lira(*draw(2, shift=8.0), attack=attack).value > 0.95


def test_fixed_variance_is_that_of_the_members_in_both_worlds():
    shadows, keep, targets, _ = draw(3)
    widened = np.where(keep[:, :, None], shadows, 5.0 * shadows)
    scores = online_scores(widened, keep, targets, fixed_variance=True)
    fewest = keep.sum(axis=0).min()
    members = np.stack([widened[keep[:, j], j][:fewest] for j in range(15)])
    outside = np.stack([widened[~keep[:, j], j][: (~keep).sum(axis=0).min()] for j in range(15)])
    m_in, m_out, variance = np.median(members, 1), np.median(outside, 1), members.std() ** 2
    expected = (((targets - m_out) ** 2 - (targets - m_in) ** 2) / (2 * variance)).mean(axis=2)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)


def test_example_that_every_shadow_was_trained_on_is_refused():
    shadows, keep, targets, answers = draw(4)
    keep[:, 6] = True
    with pytest.raises(InvalidMetricInput, match="example 6 is in all or in none"):
        lira(shadows, keep, targets, answers)


def test_keep_of_another_type_is_refused():
    shadows, keep, targets, answers = draw(5)
    with pytest.raises(InvalidMetricInput, match="shadow keep must be bool"):
        lira(shadows, keep.astype(int), targets, answers)


SETTINGS = {"n_models": 2, "shadow_rows": 60, "seed": 0}

LABELS = np.arange(30) % 5


def probabilities(seed: int, *, pull: float = 0.0, n_examples: int = 30) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 1, (3, n_examples, 5))
    logits[:, np.arange(n_examples), np.arange(n_examples) % 5] += pull
    return softmax(logits)


def test_share_equals_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    members, others, targets = rng.normal(0, 1, 80), rng.normal(1, 1, 70), rng.normal(0.5, 1, 40)
    reference = SVC(C=3, gamma="auto").fit(np.append(members, others)[:, None], np.repeat([1, 0], [80, 70]))
    assert svc_member_share(members, others, targets) == reference.predict(targets[:, None]).mean()


@pytest.mark.parametrize("attack", [svc_shares, logistic_shares])
def test_forget_examples_like_the_retain_set_are_called_members(attack):
    retain, test = probabilities(1, pull=9.0), probabilities(2)
    assert attack(probabilities(3, pull=9.0), test, retain, **SETTINGS).tolist() == pytest.approx([1.0, 1.0], abs=0.1)
    assert attack(probabilities(4), test, retain, **SETTINGS).max() < 0.3


@pytest.mark.parametrize("feature", [name for name in FEATURES if name != "m_entropy_published"])
def test_efficacy_is_low_for_members_and_high_for_others(feature):
    sets = probabilities(2), probabilities(1, pull=9.0), LABELS, LABELS, LABELS
    found = [
        efficacies(forget, *sets, feature=feature, **SETTINGS).mean()
        for forget in (probabilities(3, pull=9.0), probabilities(4))
    ]
    assert found[0] < 0.2 < 0.5 < found[1]


@pytest.mark.parametrize("feature", FEATURES)
def test_order_of_shadow_examples_does_not_matter(feature):
    order = np.random.default_rng(1).permutation(30)
    forget, test, retain = probabilities(5), probabilities(6), probabilities(7, pull=2.0)
    plain = efficacies(forget, test, retain, LABELS, LABELS, LABELS, feature=feature, **SETTINGS)
    mixed = efficacies(
        forget, test[:, order], retain[:, order], LABELS, LABELS[order], LABELS[order], feature=feature, **SETTINGS
    )
    assert mixed.tolist() == plain.tolist()


def test_shadow_part_is_drawn_from_all_rows():
    rows = np.arange(100.0)
    part = shadow_part(rows[::-1], 10, seed=1)
    assert part.shape == (10, 1)
    assert set(part[:, 0]) <= set(rows)
    assert part.max() > 50 > part.min()
