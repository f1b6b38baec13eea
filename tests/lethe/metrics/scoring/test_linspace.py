"""The float32 grid of single thresholds against torch's own."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from lethe.metrics.scoring.attacks.linspace import float32_linspace_at, fused_multiply_add


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="torch.linspace rounds twice on a processor without fused multiply-add",
)
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


@pytest.mark.parametrize("sign", [1, -1])
def test_a_product_just_above_the_middle_is_rounded_away_from_it(sign):
    # 62571 * 137283 = 2**33 + 1, so the product is 2**-24 + 2**-57: past the middle of 1 and its neighbour by less
    # than float64 can hold beside 1.
    factor, count = np.float32(sign * 62571 * 2.0**-28), np.float32(137283 * 2.0**-29)
    assert np.float32(np.float64(factor) * np.float64(count) + sign) == sign
    assert fused_multiply_add(factor, count, np.float32(sign)) == sign * np.float32(1 + 2.0**-23)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_product_just_below_the_middle_is_rounded_towards_the_start(sign):
    # (1 + a)(1 - a) = 1 - a**2: the product is 2**-24 - 2**-60, short of the middle above 1 + 2**-23.
    factor, count = np.float32(sign * (1 + 2.0**-18) * 2.0**-12), np.float32((1 - 2.0**-18) * 2.0**-12)
    start = np.float32(sign * (1 + 2.0**-23))
    assert np.float32(np.float64(factor) * np.float64(count) + np.float64(start)) != start
    assert fused_multiply_add(factor, count, start) == start
