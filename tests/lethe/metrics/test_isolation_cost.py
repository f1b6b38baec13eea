from fractions import Fraction
from math import comb

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.cost.cost import isolation_cost, occupied_shards


def all_shards_by_the_formula(p: int, n: int) -> float:
    terms = ((-1) ** (j + 1) * comb(p, j) * Fraction(p - j, p) ** n for j in range(1, p + 1))
    return float(1 - sum(terms))


@pytest.mark.parametrize(("n_shards", "n_forgotten"), [(1, 1), (2, 1), (5, 3), (5, 40), (40, 200), (100, 700)])
def test_cost_equals_the_formula_in_exact_arithmetic(n_shards, n_forgotten):
    result = isolation_cost(n_shards, n_forgotten)
    expected = float(n_shards * (1 - (1 - Fraction(1, n_shards)) ** n_forgotten))
    assert result.value == pytest.approx(expected, rel=1e-12)
    assert result.table["all_shards"] == pytest.approx(all_shards_by_the_formula(n_shards, n_forgotten), abs=1e-12)


def test_expected_number_is_the_mean_of_the_distribution():
    distribution = occupied_shards(30, 25)
    assert distribution.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.arange(31) * distribution).sum() == pytest.approx(isolation_cost(30, 25).value, rel=1e-12)


def test_cost_rises_with_the_number_of_forgotten_examples():
    costs = [isolation_cost(20, n).value for n in range(1, 60)]
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(1.0)


@pytest.mark.parametrize(("n_shards", "n_forgotten"), [(0, 1), (3, 0), (-1, 2)])
def test_numbers_below_one_are_refused(n_shards, n_forgotten):
    with pytest.raises(InvalidMetricInput, match="at least 1"):
        isolation_cost(n_shards, n_forgotten)
