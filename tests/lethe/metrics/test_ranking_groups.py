import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering

from lethe.metrics import InvalidMetricInput
from lethe.metrics.benchmark.rankings import dense_ranks, ranking_groups, ranking_result

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(4, 20), st.booleans())
def test_groups_equal_wards_clusters_of_scikit_learn(seed, n_methods, higher):
    values = np.random.default_rng(seed).gamma(0.5, 1.0, n_methods)
    labels = AgglomerativeClustering(n_clusters=3, linkage="ward").fit_predict(values[:, None])
    means = sorted((values[labels == k].mean(), k) for k in range(3))
    number = {k: place for place, (_, k) in enumerate(reversed(means) if higher else means, start=1)}
    found = ranking_groups(values[None], higher_is_better=higher)
    assert found.groups[0].tolist() == [number[label] for label in labels]


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_order_of_methods_and_cells_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    values = rng.gamma(0.5, 1.0, (4, 9))
    values[rng.random((4, 9)) < 0.2] = np.nan
    cells, methods = rng.permutation(4), rng.permutation(9)
    plain = ranking_groups(values, higher_is_better=False)
    mixed = ranking_groups(values[cells][:, methods], higher_is_better=False)
    assert mixed.counts.tolist() == plain.counts[methods].tolist()
    assert mixed.ranks.tolist() == plain.ranks[methods].tolist()


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_direction_only_mirrors_the_groups(seed):
    values = np.random.default_rng(seed).normal(0, 1, (2, 8))
    up, down = ranking_groups(values, higher_is_better=True), ranking_groups(-values, higher_is_better=False)
    assert up.groups.tolist() == down.groups.tolist()


def test_failed_methods_are_counted_apart():
    found = ranking_groups(np.array([[0.1, np.nan, 0.2], [np.nan, np.nan, 0.2]]), higher_is_better=False)
    assert found.groups.tolist() == [[1, 0, 2], [0, 0, 1]]
    assert found.counts.tolist() == [[1, 0, 0, 1], [0, 0, 0, 2], [1, 1, 0, 0]]
    assert found.ranks.tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    ("row", "groups"),
    [
        ([0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1]),
        ([0.2, 0.1, 0.2, 0.2], [2, 1, 2, 2]),
        ([0.3], [1]),
        ([np.nan, np.nan], [0, 0]),
    ],
)
def test_few_different_values_make_as_many_groups(row, groups):
    assert ranking_groups(np.array([row]), higher_is_better=False).groups[0].tolist() == groups


def test_equal_counts_share_a_rank_and_leave_no_gap():
    assert dense_ranks(np.array([[2, 0], [1, 1], [2, 0], [3, 0]])).tolist() == [2, 1, 2, 3]


def test_the_result_counts_the_methods_that_share_the_first_rank():
    found = ranking_result(np.array([[0.1, 0.1, 0.5, 0.9, np.nan], [0.1, 0.1, 0.5, 0.9, 0.9]]))
    assert found.value == 2.0
    assert found.table == {
        "group_1": [2, 2, 0, 0, 0],
        "group_2": [0, 0, 2, 0, 0],
        "group_3": [0, 0, 0, 2, 1],
        "failed": [0, 0, 0, 0, 1],
        "rank": [1, 1, 2, 3, 4],
    }
    assert ranking_result(np.array([[0.1, 0.5]]), higher_is_better=True).table["rank"] == [2, 1]


@pytest.mark.parametrize("values", [[0.1, 0.2], [[np.inf, 0.1]], np.empty((0, 3)), np.empty((2, 0))])
def test_values_of_another_shape_or_infinite_ones_are_refused(values):
    with pytest.raises(InvalidMetricInput, match="of shape"):
        ranking_groups(values, higher_is_better=True)
