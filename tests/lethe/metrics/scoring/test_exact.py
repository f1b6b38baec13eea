"""The exact attacks against an enumeration of every interval, and their freedom from scale."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics.scoring.attacks.alternating_runs import strongest_of_runs
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import per_example_epsilon


def exact(unlearned, retrained):
    u, r = np.asarray(unlearned, float)[:, None], np.asarray(retrained, float)[:, None]
    return float(per_example_epsilon(u, r, attacks=AttackFamily.EXACT)[0])


def enumerated(unlearned, retrained, delta=1e-5, cap=50.0):
    """The largest epsilon of all intervals between observed values, each called either side."""
    u, r = np.asarray(unlearned, float), np.asarray(retrained, float)
    values, n = np.unique(np.concatenate([u, r])), len(u)
    best = 0.0
    for i, low in enumerate(values):
        for high in values[i:]:
            in_u = int(((low <= u) & (u <= high)).sum())
            in_r = int(((low <= r) & (r <= high)).sum())
            for hit, false_alarm in ((in_u, in_r), (in_r, in_u)):
                fnr, fpr = (n - hit) / n, false_alarm / n
                if fnr == 0 and fpr == 0:
                    return cap
                if fnr == 0 or fpr == 0:
                    continue
                for a, b in ((fpr, fnr), (fnr, fpr)):
                    if 1 - delta - a > 0:
                        best = max(best, math.log(1 - delta - a) - math.log(b))
    return min(best, cap)


few_values = st.integers(min_value=2, max_value=9).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 6), min_size=n, max_size=n) for _ in range(2)))
)
many_values = st.integers(min_value=2, max_value=14).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(-1000, 1000), min_size=n, max_size=n) for _ in range(2)))
)


@settings(max_examples=700, deadline=None)
@given(few_values | many_values)
def test_exact_is_the_maximum_of_the_enumeration(samples):
    assert exact(*samples) == pytest.approx(enumerated(*samples), abs=1e-12)


distinct_sides = st.integers(min_value=2, max_value=12).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 40), min_size=n, max_size=n) for _ in range(2)))
)


@settings(max_examples=700, deadline=None)
@given(distinct_sides)
def test_exact_without_ties_equals_the_enumeration(samples):
    u, r = (np.array(side) for side in samples)
    u, r = 2 * u, 2 * r + 1  # values may repeat within a side only
    expected = enumerated(u, r)
    assert exact(u, r) == pytest.approx(expected, abs=1e-12)
    if expected < 50.0:
        assert math.log(strongest_of_runs(*_workspaces(u, r))) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=300, deadline=None)
@given(many_values)
def test_a_value_on_both_sides_is_noticed(samples):
    u, r = samples
    if max(u) < min(r) or max(r) < min(u):
        return
    assert (strongest_of_runs(*_workspaces(u, r)) == 0.0) == bool(set(u) & set(r))


def _workspaces(unlearned, retrained):
    n = len(unlearned)
    u, r = np.sort(np.asarray(unlearned, float)), np.sort(np.asarray(retrained, float))
    return u, r, 1e-5, np.empty(2 * n, np.uint8), np.empty((2, 2 * n + 1))


def test_larger_samples_are_the_maximum_of_the_enumeration():
    rng = np.random.default_rng(6)
    for n in (40, 64):
        u, r = rng.normal(0, 1, n), rng.normal(0.4, 1.5, n)
        assert exact(u, r) == pytest.approx(enumerated(u, r), abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(many_values, st.sampled_from(["exp", "cube", "rank", "shrink", "stretch"]))
def test_an_increasing_map_changes_nothing(samples, name):
    u, r = (np.array(side, float) for side in samples)
    ranks = np.unique(np.concatenate([u, r]))
    image = {
        "exp": lambda x: np.exp(x / 200.0),
        "cube": lambda x: x**3,
        "rank": lambda x: np.searchsorted(ranks, x).astype(float),
        "shrink": lambda x: x * 1e-300,
        "stretch": lambda x: x * 1e300,
    }[name]
    assert exact(image(u), image(r)) == exact(u, r)


@settings(max_examples=200, deadline=None)
@given(many_values)
def test_a_reversed_scale_or_exchanged_sides_change_nothing(samples):
    u, r = (np.array(side, float) for side in samples)
    assert exact(-u, -r) == pytest.approx(exact(u, r), abs=1e-12)
    assert exact(r, u) == pytest.approx(exact(u, r), abs=1e-12)


def test_the_order_of_models_changes_nothing():
    rng = np.random.default_rng(1)
    u, r = rng.normal(0, 1, 65), rng.normal(1, 1, 65)
    assert exact(rng.permutation(u), rng.permutation(r)) == exact(u, r)


def test_equal_values_everywhere_have_epsilon_zero():
    assert exact([2.0, 2.0, 2.0], [2.0, 2.0, 2.0]) == 0.0


def test_two_different_constants_reach_the_cap():
    assert exact([1.0, 1.0], [np.nextafter(1.0, 2.0)] * 2) == 50.0


def test_a_side_enclosed_in_a_gap_of_the_other_reaches_the_cap():
    assert exact([1.0, 1.1, 1.2, 1.3], [0.0, 0.5, 2.0, 3.0]) == 50.0


def test_hand_worked_case():
    # Calling c >= 2.5 retrained: FNR 1/4, FPR 1/4. No other rule beats log(3/4 - delta) - log(1/4).
    assert exact([1.0, 2.0, 2.1, 3.0], [2.0, 3.0, 4.0, 5.0]) == pytest.approx(math.log((0.75 - 1e-5) / 0.25))
