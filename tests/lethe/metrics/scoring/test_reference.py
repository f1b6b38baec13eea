"""The reference attacks against the published program's own numbers and a slow transcription of it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lethe.metrics.scoring.attacks.exact import exact_epsilon_of_sorted
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import forgetting_quality, per_example_epsilon
from tests.lethe.metrics.scoring.literal import AllDiscardedError, literal_epsilon

GOLDEN = np.load(Path(__file__).parents[3] / "golden" / "epsilon_golden.npz")

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="torch.linspace rounds twice on a processor without fused multiply-add",
)


@pytest.mark.parametrize("case", range(4))
def test_epsilon_is_that_of_the_published_program(case):
    """Its logarithms are float32: another processor may round the last bit otherwise."""
    epsilon = per_example_epsilon(
        GOLDEN[f"case{case}_unlearned"], GOLDEN[f"case{case}_retrained"], attacks=AttackFamily.REFERENCE
    )
    np.testing.assert_allclose(epsilon, GOLDEN[f"case{case}_epsilon"], rtol=5e-7, atol=0, strict=True)


@pytest.mark.parametrize("case", range(4))
def test_golden_forgetting_quality_is_equal(case):
    unlearned = GOLDEN[f"case{case}_unlearned"]
    epsilon = per_example_epsilon(unlearned, GOLDEN[f"case{case}_retrained"], attacks=AttackFamily.REFERENCE)
    assert forgetting_quality(epsilon, n_models=len(unlearned)) == GOLDEN[f"case{case}_forgetting_quality"]


def normal(rng, n):
    return rng.normal(rng.uniform(-3, 3), rng.uniform(0.5, 3), n), rng.normal(0, rng.uniform(0.5, 3), n)


def tied(rng, n):
    levels = rng.integers(2, 8)
    return rng.integers(0, levels, n) / 4.0, rng.integers(0, levels, n) / 4.0 + rng.integers(0, 2) / 4.0


def on_the_grid(rng, n):
    return rng.integers(0, 400, n) * (4.0 / 399), rng.integers(0, 400, n) * (4.0 / 399)


def hundredths(rng, n):
    return rng.integers(0, 300, n) / 100, rng.integers(0, 300, n) / 100


def constant_side(rng, n):
    return np.full(n, rng.normal()), rng.normal(0, 2, n)


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


def permuted_copy(rng, n):
    u = rng.normal(0, 2, n)
    return u, rng.permutation(u)


def tiny(rng, n):
    scale = 10.0 ** rng.uniform(-320, -2)
    return rng.normal(0, 1, n) * scale, rng.normal(0.5, 1, n) * scale


def subnormal(rng, n):
    return rng.integers(0, 5, n) * 5e-324, rng.integers(0, 5, n) * 5e-324


def signed_zeros(rng, n):
    return rng.choice([-0.0, 0.0, 0.5], n), rng.choice([-0.0, 0.0, -0.5], n)


def saturated(rng, n):
    return np.where(rng.random(n) < 0.5, 103.6, rng.normal(30, 5, n)), np.minimum(103.6, rng.normal(90, 15, n))


def float32_valued(rng, n):
    return rng.normal(0, 2, n).astype(np.float32).astype(float), rng.normal(1, 2, n).astype(np.float32).astype(float)


def far_from_zero(rng, n):
    place = rng.normal() * 10.0 ** rng.uniform(1, 5.4)
    return place + rng.normal(0, 1, n), place + rng.normal(0.3, 1.5, n)


def wide(rng, n):
    return rng.normal(0, 200, n), rng.normal(100, 300, n)


KINDS = [
    normal, tied, on_the_grid, hundredths, constant_side, nearly_constant, one_outlier, apart, shared_values,
    permuted_copy, tiny, subnormal, signed_zeros, saturated, float32_valued, far_from_zero, wide,
]  # fmt: skip


def assert_equals_literal(unlearned, retrained):
    epsilon = float(per_example_epsilon(unlearned[:, None], retrained[:, None], attacks=AttackFamily.REFERENCE)[0])
    try:
        expected = literal_epsilon(unlearned, retrained)
    except AllDiscardedError:
        expected = exact_epsilon_of_sorted(np.sort(unlearned)[None], np.sort(retrained)[None], 1e-5, 50.0)[0]
    assert epsilon == expected, (epsilon, expected, unlearned.tolist(), retrained.tolist())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_small_random_cases_equal_the_literal_program(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(120):
        assert_equals_literal(*kind(rng, int(rng.integers(2, 9))))


@pytest.mark.parametrize("n_models", [16, 33, 100, 257, 512, 1024])
def test_large_samples_equal_the_literal_program(n_models):
    rng = np.random.default_rng(n_models)
    for kind in (normal, tied) if n_models < 500 else (normal,):
        assert_equals_literal(*kind(rng, n_models))
