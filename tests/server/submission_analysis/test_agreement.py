"""Correlations, frontiers and hard examples from plain numbers."""

import numpy as np
import pytest

from server.submission_analysis import comparison


def test_ranks_need_three_known_values_of_both() -> None:
    values = {"a": [1.0, 2.0, 3.0, np.nan], "b": [np.nan, 1.0, 2.0, 3.0], "c": [1.0, np.nan, np.nan, np.nan]}
    found = comparison.rank_correlations(values)
    assert found is not None
    assert list(found.names) == ["a", "b"]
    assert found.rows[0] == [pytest.approx(1.0), None]


def test_constant_metric_has_no_correlation() -> None:
    found = comparison.rank_correlations({"a": [1.0, 2.0, 3.0], "b": [5.0, 5.0, 5.0]})
    assert found is not None
    assert found.rows[1] == [None, None]


def test_submissions_without_common_examples_have_no_hard_ones() -> None:
    assert comparison.hard_examples({}, n_models=8) == []
    assert comparison.epsilon_correlations({"a": np.ones(4), "b": np.ones(5)}) is None


@pytest.mark.parametrize(
    ("direction", "oracle", "expected"),
    [("higher", None, -0.7), ("lower", None, 0.7), ("none", 0.5, None), ("towards retrained", 0.5, pytest.approx(0.2))],
)
def test_loss_follows_the_direction(direction: str, oracle: float | None, expected: float | None) -> None:
    assert comparison.loss(0.7, direction=direction, oracle=oracle) == expected


def test_without_a_reference_nothing_is_towards_it() -> None:
    assert comparison.loss(0.7, direction="towards retrained", oracle=None) is None


def test_noise_keeps_a_submission_on_the_frontier() -> None:
    losses = [[0.1, 0.1], [0.2, 0.2]]
    assert comparison.on_frontier(losses, [[0.0, 0.0], [0.0, 0.0]]) == [True, False]
    assert comparison.on_frontier(losses, [[0.1, 0.1], [0.1, 0.1]]) == [True, True]
    assert comparison.standard_error(0.0, 2 * 1.959963984540054) == pytest.approx(1.0)
