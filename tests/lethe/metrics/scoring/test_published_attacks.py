"""The reference and exact attacks: against the program's numbers, a transcription of it, and every interval."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics.scoring.attacks.alternating_runs import strongest_of_runs
from lethe.metrics.scoring.attacks.exact import exact_epsilon_of_sorted
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.attacks.reference import float32_linspace_at, fused_multiply_add
from lethe.metrics.scoring.epsilon import forgetting_quality, per_example_epsilon
from tests.lethe.metrics.scoring.literal import AllDiscardedError, literal_epsilon

GOLDEN = np.load(Path(__file__).parents[3] / "golden" / "epsilon_golden.npz")

FUSED = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="torch.linspace rounds twice on a processor without fused multiply-add",
)


@FUSED
@pytest.mark.parametrize("case", range(4))
def test_epsilon_and_forgetting_quality_are_those_of_the_published_program(case):
    """Its logarithms are float32: another processor may round the last bit otherwise."""
    unlearned, retrained, expected, quality = (
        GOLDEN[f"case{case}_{name}"] for name in ("unlearned", "retrained", "epsilon", "forgetting_quality")
    )
    epsilon = per_example_epsilon(unlearned, retrained, attacks=AttackFamily.REFERENCE)
    np.testing.assert_allclose(epsilon, expected, rtol=5e-7, atol=0, strict=True)
    assert forgetting_quality(epsilon, n_models=len(unlearned)) == quality


def normal(rng, n):
    return rng.normal(rng.uniform(-3, 3), rng.uniform(0.5, 3), n), rng.normal(0, rng.uniform(0.5, 3), n)


def tied(rng, n):
    levels = rng.integers(2, 8)
    return rng.integers(0, levels, n) / 4.0, rng.integers(0, levels, n) / 4.0 + rng.integers(0, 2) / 4.0


def on_the_grid(rng, n):
    return rng.integers(0, 400, n) * (4.0 / 399), rng.integers(0, 400, n) * (4.0 / 399)


def hundredths(rng, n):
    return rng.integers(0, 300, n) / 100, rng.integers(0, 300, n) / 100


def nearly_constant(rng, n):
    width = rng.uniform(0.005, 0.02)
    return rng.uniform(0, width, n), rng.uniform(-0.5, 0.5, n)


def one_outlier(rng, n):
    u = rng.normal(0, 0.01, n)
    u[rng.integers(n)] = rng.normal(0, 8)
    return u, rng.normal(0, 2, n)


def apart(rng, n):
    return rng.uniform(0, 1, n), rng.uniform(1.0 + rng.uniform(0, 0.02), 2.0, n)


def shared_values(rng, n):
    pool = rng.normal(0, 2, max(2, n // 2))
    return rng.choice(pool, n), rng.choice(pool, n)


def tiny(rng, n):
    scale = 10.0 ** rng.uniform(-320, -2)
    return rng.normal(0, 1, n) * scale, rng.normal(0.5, 1, n) * scale


def signed_zeros(rng, n):
    return rng.choice([-0.0, 0.0, 0.5], n), rng.choice([-0.0, 0.0, -0.5], n)


def saturated(rng, n):
    return np.where(rng.random(n) < 0.5, 103.6, rng.normal(30, 5, n)), np.minimum(103.6, rng.normal(90, 15, n))


def far_from_zero(rng, n):
    place = rng.normal() * 10.0 ** rng.uniform(1, 5.4)
    return place + rng.normal(0, 1, n), place + rng.normal(0.3, 1.5, n)


def wide(rng, n):
    return rng.normal(0, 200, n), rng.normal(100, 300, n)


KINDS = [
    normal, tied, on_the_grid, hundredths, nearly_constant, one_outlier, apart, shared_values,
    tiny, signed_zeros, saturated, far_from_zero, wide,
]  # fmt: skip


def assert_equals_literal(unlearned, retrained):
    epsilon = float(per_example_epsilon(unlearned[:, None], retrained[:, None], attacks=AttackFamily.REFERENCE)[0])
    try:
        expected = literal_epsilon(unlearned, retrained)
    except AllDiscardedError:
        expected = exact_epsilon_of_sorted(np.sort(unlearned)[None], np.sort(retrained)[None], 1e-5, 50.0)[0]
    assert epsilon == expected, (epsilon, expected, unlearned.tolist(), retrained.tolist())


@FUSED
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_small_random_cases_equal_the_literal_program(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(120):
        assert_equals_literal(*kind(rng, int(rng.integers(2, 9))))


@FUSED
@pytest.mark.parametrize("n_models", [16, 33, 100, 257, 512, 1024])
def test_large_samples_equal_the_literal_program(n_models):
    rng = np.random.default_rng(n_models)
    for kind in (normal, tied) if n_models < 500 else (normal,):
        assert_equals_literal(*kind(rng, n_models))


@FUSED
def test_every_element_equals_torch_linspace():
    rng = np.random.default_rng(0)
    for _ in range(300):
        low, high = np.sort(rng.normal(rng.normal() * 10, 10.0 ** rng.uniform(-3, 1.5), 2)).astype(np.float32)
        count = int(np.ceil(float(high - low) * 100)) or 1
        expected = torch.linspace(float(low), float(high), count).numpy()
        found = np.array([float32_linspace_at(low, high, count, k) for k in range(count)], np.float32)
        np.testing.assert_array_equal(found, expected)


def exactly_rounded(factor, count, start):
    exact = Fraction(float(factor)) * Fraction(float(count)) + Fraction(float(start))
    guess = np.float32(float(exact))
    candidates = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    nearest = min(abs(Fraction(float(c)) - exact) for c in candidates)
    closest = [c for c in candidates if abs(Fraction(float(c)) - exact) == nearest]
    return closest[0] if len(closest) == 1 else min(closest, key=lambda c: c.view(np.uint32) & 1)


def test_the_fused_product_and_sum_are_rounded_once():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        a, b, c = (rng.normal(0, 1, 3) * 2.0 ** rng.integers(-30, 30, 3)).astype(np.float32)
        assert fused_multiply_add(a, b, c) == exactly_rounded(a, b, c)


# 62571 * 137283 = 2**33 + 1, so the product is 2**-24 + 2**-57: past the middle of 1 and its neighbour by less than
# float64 can hold beside 1. (1 + a)(1 - a) = 1 - a**2: the product is 2**-24 - 2**-60, short of the next middle.
MIDDLES = [
    (62571 * 2.0**-28, 137283 * 2.0**-29, 1.0, 1 + 2.0**-23),
    ((1 + 2.0**-18) * 2.0**-12, (1 - 2.0**-18) * 2.0**-12, 1 + 2.0**-23, 1 + 2.0**-23),
]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("factor", "count", "start", "rounded"), MIDDLES, ids=["above", "below"])
def test_a_product_beside_the_middle_is_rounded_once(factor, count, start, rounded, sign):
    factor, count, start = np.float32(sign * factor), np.float32(count), np.float32(sign * start)
    twice = np.float32(np.float64(factor) * np.float64(count) + np.float64(start))
    assert fused_multiply_add(factor, count, start) == np.float32(sign * rounded) != twice


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


@settings(max_examples=500, deadline=None)
@given(few_values | many_values)
def test_exact_is_the_maximum_of_the_enumeration_each_way_round(samples):
    u, r = (np.array(side) for side in samples)
    for sides in ((u, r), (r, u), (-u, -r)):
        assert exact(*sides) == pytest.approx(enumerated(u, r), abs=1e-12)


distinct_sides = st.integers(min_value=2, max_value=12).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 40), min_size=n, max_size=n) for _ in range(2)))
)


@settings(max_examples=500, deadline=None)
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


def test_hand_worked_case():
    # Calling c >= 2.5 retrained: FNR 1/4, FPR 1/4. No other rule beats log(3/4 - delta) - log(1/4).
    assert exact([1.0, 2.0, 2.1, 3.0], [2.0, 3.0, 4.0, 5.0]) == pytest.approx(math.log((0.75 - 1e-5) / 0.25))
