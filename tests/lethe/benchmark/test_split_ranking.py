"""Ranks over splits, and what may be ranked at all."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from lethe.metrics.benchmark.rankings import paired_t
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.benchmark_tables import benchmark_tables
from lethe.reports.split_ranking_table import rank_over_splits, same_task_cells, significance_letters

CLEAR = np.array([[0.9, 0.8, 0.9, 0.85, 0.9], [0.1, 0.12, 0.1, 0.11, 0.1], [0.11, 0.1, 0.12, 0.1, 0.1]])


def test_clear_winner_is_first_in_every_sample_and_alone_in_its_group():
    found = rank_over_splits(CLEAR, higher_is_better=True)
    assert found.rank_probability[0].tolist() == [1.0, 0.0, 0.0]
    assert found.letters == ("a", "b", "b")
    assert found.rank_probability.sum(axis=0) == pytest.approx(np.ones(3))
    assert 0.2 < found.rank_probability[1, 1] < 0.8
    found = rank_over_splits(CLEAR, higher_is_better=False)
    assert found.rank_probability[0].tolist() == [0.0, 0.0, 1.0]
    assert found.letters == ("b", "a", "a")


def test_probability_is_that_of_all_samples_of_two_splits():
    # means of (a, a), (a, b), (b, a), (b, b): the first method leads in three of four
    found = rank_over_splits(np.array([[1.0, 0.4], [0.0, 0.6]]), higher_is_better=True)
    assert found.rank_probability[0, 0] == pytest.approx(0.75, abs=0.02)
    assert found.letters == ("a", "a")
    found = rank_over_splits(np.zeros((2, 3)), higher_is_better=True)
    assert found.rank_probability[0, 0] == pytest.approx(0.5, abs=0.02), "equal methods share their ranks"


def test_pairs_are_one_family_of_two_sided_tests_that_a_spread_first_method_does_not_absorb():
    rng = np.random.default_rng(0)
    spread = 5.0 + 10.0 * np.array([1.0, -1.0, 1.2, -1.2, 0.0])  # first by its mean, and told apart from nobody
    rows = np.stack([spread, 3.0 + 0.01 * rng.random(5), 2.0 + 0.01 * rng.random(5), 1.0 + 0.01 * rng.random(5)])
    found = rank_over_splits(rows, higher_is_better=True)
    raw = [ttest_rel(rows[a], rows[b]).pvalue for a, b in combinations(range(4), 2)]
    order = np.argsort(raw)
    corrected = np.maximum.accumulate(np.array(raw)[order] * np.arange(6, 0, -1))
    assert sorted(found.p_value[np.triu_indices(4, 1)]) == pytest.approx(sorted(np.minimum(corrected, 1.0)))
    assert found.n_tests == 6
    assert not found.differs[0].any()
    assert int(np.triu(found.differs, 1).sum()) == 3
    assert found.letters == ("abc", "a", "b", "c")


@given(st.integers(2, 9), st.data())
def test_letters_say_exactly_which_pairs_differ(n_methods, data):
    upper = data.draw(st.lists(st.booleans(), min_size=n_methods**2, max_size=n_methods**2))
    differs = np.triu(np.array(upper).reshape(n_methods, n_methods), 1)
    differs = differs | differs.T
    letters = significance_letters(differs, np.arange(n_methods))
    for a, b in combinations(range(n_methods), 2):
        assert bool(set(letters[a]) & set(letters[b])) != differs[a, b]
    assert "a" in letters[0]


def test_differences_with_a_mean_of_zero_are_tested():
    found = paired_t([0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0])
    assert (found.mean, found.effect, found.p_value) == (0.0, 0.0, 0.5)
    assert found.interval == pytest.approx((-1.837, 1.837), abs=1e-3)  # t(3, .975) * 1.1547 / 2


@pytest.mark.parametrize("values", [np.zeros((2, 1)), np.zeros((1, 3)), np.full((2, 3), np.nan)])
def test_one_split_one_method_or_no_value_is_refused(values):
    with pytest.raises(InvalidMetricInput):
        rank_over_splits(values, higher_is_better=True)


def content(cells, states):
    """Return results of two methods. cells: name -> (seed, F of each method). states: of each method's constants."""
    methods = [{"name": name, "id": None, "constants": {}, "key": name} for name in states]
    made = {}
    for cell, (seed, values) in cells.items():
        rows = {
            name: {
                "values": {"f": {"value": value}, "retdev": {"value": 1 - value}, "indiscernibility": {"value": value}},
                "tuning": {"state": state, "settings": {}, "objective": "f", "trials": 1, "work_epochs": 1.0}
                | {"cpu_time_s": 1.0, "fresh": 0.1, "own_fresh": 0.0},
            }
            for (name, state), value in zip(states.items(), values, strict=True)
        }
        made[cell] = {"settings": {"splits": {"seed": seed}}, "rows": rows}
    tables = {"groups": ["retdev", "indiscernibility"], "pareto": ["retdev", "indiscernibility"]}
    return {
        "methods": methods, "cells": made, "n_models": 4, "tables": tables,
        "metrics": [{"id": name} for name in ("f", "retdev", "indiscernibility")],
    }  # fmt: skip


TWO = {"one": (1, (0.5, 0.2, 0.3)), "two": (2, (0.6, 0.1, 0.3))}


def test_one_cell_ranks_nothing():
    made = content({"one": TWO["one"]}, {"a": "tuned", "b": "tuned", "c": "tuned"})
    (only,) = [table for table in benchmark_tables(made, groups=True) if "anking" in table.title]
    assert only.rows == (("one cell says nothing of the order of methods",),)


def test_untuned_methods_are_not_ranked_against_tuned_ones():
    made = content(TWO, {"a": "tuned", "b": "untuned", "c": "nothing to tune"})
    ranking = next(table for table in benchmark_tables(made, groups=True) if table.title.startswith("Ranking"))
    assert "not ranked, because not tuned: b" in ranking.title
    assert {row[0] for row in ranking.rows} == {"a", "c"}
    over_splits = next(table for table in benchmark_tables(made, groups=True) if table.title.startswith("Ranks by f"))
    assert [row[0] for row in over_splits.rows] == ["a", "c"]
    assert "fewer than 5 splits: not for citing" in over_splits.title
    untuned = content(TWO, {"a": "untuned", "b": "untuned", "c": "untuned"})
    titles = [table.title for table in benchmark_tables(untuned, groups=True)]
    assert "Ranking of methods (no method was tuned: it says nothing of the methods)" in titles


def test_cells_of_other_data_are_another_task():
    made = content(TWO, {"a": "tuned", "b": "tuned", "c": "tuned"})
    assert same_task_cells(made) == [["one", "two"]]
    made["cells"]["two"]["settings"]["splits"]["train_size"] = 7
    assert same_task_cells(made) == [["one"], ["two"]]
