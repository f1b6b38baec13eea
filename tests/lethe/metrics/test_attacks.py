"""Membership attacks on losses and outputs: against scikit-learn, and at their edges."""

import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import auc
from sklearn.metrics import roc_curve as reference_curve
from threadpoolctl import threadpool_info, threadpool_limits

from lethe.metrics import InvalidMetricInput
from lethe.metrics.attacks import scalar_attack
from lethe.metrics.attacks.classifier_attacks import (
    FEATURES,
    efficacies,
    logistic_member_share,
    shadow_part,
    svc_member_share,
)
from lethe.metrics.attacks.likelihood_attack import roc_curve
from lethe.metrics.attacks.scalar_attack import (
    attack_accuracy,
    fit_logistic,
    softmax_attack_percent,
    split_accuracies,
    stratified_splits,
)
from lethe.metrics.core.compiled import in_threads, one_blas_thread, slices
from lethe.metrics.core.derived_arrays import softmax
from lethe.metrics.membership import umia
from lethe.metrics.membership.likelihood_ratios import lira
from lethe.metrics.membership.mia import entropy_shares

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


def test_separable_losses_are_told_apart_and_equal_ones_are_not():
    assert attack_accuracy(gamma(1, 1.0, 50), 100.0 + gamma(2, 1.0, 60), **SPLITS).tolist() == [1.0, 1.0, 1.0]
    assert attack_accuracy(np.ones((2, 25)), np.ones((2, 31)), **SPLITS).tolist() == [0.5, 0.5]


def test_attack_ignores_the_order_of_examples():
    members, others = gamma(1, 1.0, 40), gamma(2, 1.3, 70)
    turned = attack_accuracy(members[:, ::-1], np.roll(others, 7, axis=1), **SPLITS)
    assert turned.tolist() == attack_accuracy(members, others, **SPLITS).tolist()


def test_weights_are_those_of_scikit_learn():
    features = np.random.default_rng(0).dirichlet(np.ones(5), (2, 300))
    features[1, :150, 0] += 0.5
    labels = np.repeat([1.0, 0.0], 150)
    for weights, rows in zip(fit_logistic(features, labels), features, strict=True):
        with one_blas_thread():
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


def test_indiscernibility_is_the_mean_over_models_not_of_the_mean():
    assert umia.indiscernibility(np.array([0.25, 0.75])).value == 0.5


def draw(seed: int, shift: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    keep = np.argsort(rng.random((20, 15)), axis=0) < 10
    scores = rng.normal(0, 1, (20, 15, 2)) + shift * keep[:, :, None]
    return scores[:-3], keep[:-3], scores[-3:], keep[-3:]


@pytest.mark.parametrize("attack", ["online", "online_fixed", "offline", "offline_fixed", "threshold"])
def test_every_attack_finds_members_that_stand_out(attack):
    assert lira(*draw(2, shift=8.0), attack=attack).value > 0.95


def lira_of(seed: int, **changed: np.ndarray) -> None:
    shadows, keep, targets, answers = draw(seed)
    lira(shadows, changed.get("keep", keep), targets, answers)


REFUSED = {
    r"holds out 0.1 of 10 examples .* at least 6 members": lambda: attack_accuracy(
        np.zeros((1, 5)), np.zeros((1, 50)), **SPLITS
    ),
    "at least 2 examples of each set, not 1": lambda: softmax_attack(np.ones((1, 1, 2)), np.ones((1, 9, 2))),
    "members and non-members": lambda: roc_curve(np.arange(3.0), np.ones(3, dtype=bool)),
    **{
        f"must be within .0, 1., not {rate}": lambda rate=rate: roc_curve(
            np.arange(2.0), np.array([True, False])
        ).true_positive_rate_below(rate)
        for rate in (0.0, -0.1, 1.1)
    },
    "example 6 is in all or in none": lambda: lira_of(4, keep=draw(4)[1] | (np.arange(15) == 6)),
    "shadow keep must be bool": lambda: lira_of(5, keep=draw(5)[1].astype(int)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_attacked_is_refused(message):
    with pytest.raises(InvalidMetricInput, match=message):
        REFUSED[message]()


SETTINGS = {"n_models": 2, "shadow_rows": 60, "seed": 0}

LABELS = np.arange(30) % 5


def probabilities(seed: int, *, pull: float = 0.0, n_examples: int = 30) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 1, (3, n_examples, 5))
    logits[:, np.arange(n_examples), np.arange(n_examples) % 5] += pull
    return softmax(logits)


@pytest.mark.parametrize("classifier", [svc_member_share, logistic_member_share])
def test_forget_examples_like_the_retain_set_are_called_members(classifier):
    attack = partial(entropy_shares, classifier=classifier)
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


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_order_of_examples_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    forget, test = rng.gamma(0.5, 0.5, (3, 40)), rng.gamma(0.5, 0.5, (3, 90))
    mixed = umia.forget_test_attack(forget[:, rng.permutation(40)], test[:, rng.permutation(90)], n_splits=10, seed=0)
    assert mixed.tolist() == umia.forget_test_attack(forget, test, n_splits=10, seed=0).tolist()


def test_float32_losses_are_fitted_in_float32_as_scikit_learn_does():
    """With this seed one fit in float64 ends on the other side of a held-out example."""
    losses32 = np.abs(np.random.default_rng(16).normal(0, 3, 120)).astype(np.float32)
    losses32[:60] += np.float32(0.2)
    labels, (train, held) = np.repeat([0, 1], 60), stratified_splits(60, n_splits=10, test_share=0.1, seed=0)
    fits = [LogisticRegression().fit(losses32[rows, None], labels[rows]) for rows in train]
    expected = [fit.score(losses32[rows, None], labels[rows]) for fit, rows in zip(fits, held, strict=True)]
    found = split_accuracies(losses32[None], labels, train, held, solver="lbfgs")
    assert found.tolist() == [expected]
    assert split_accuracies(losses32[None].astype(np.float64), labels, train, held, solver="lbfgs").tolist() != [
        expected
    ]


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize(
    ("module", "function"), [(scalar_attack, partial(umia.forget_test_attack, n_splits=2, seed=0)), (umia, umia.hits)]
)
def test_small_fits_have_one_blas_thread(module, function, monkeypatch):
    seen, fit = [], scalar_attack.fit_lbfgs

    def recorded(*args):
        seen.append(blas_threads())
        return fit(*args)

    monkeypatch.setattr(module, "fit_lbfgs", recorded)
    losses = np.random.default_rng(0).exponential(size=(2, 20))
    with threadpool_limits(limits=2, user_api="blas"):
        function(losses, 2.0 * losses)
        assert blas_threads() == {2}
    assert seen
    assert all(threads == {1} for threads in seen)


def test_results_are_in_the_order_of_the_models():
    def slow(model):
        time.sleep(0.02 / (model + 1))
        return model

    assert in_threads(slow, range(6)) == list(range(6))


@pytest.mark.parametrize("size", [0, 1, 7, 512])
def test_slices_cover_every_row_once(size):
    parts = slices(size)
    assert [row for part in parts for row in range(size)[part]] == list(range(size))
    assert all(part.stop > part.start for part in parts)
