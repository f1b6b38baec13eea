import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics import InvalidMetricInput
from lethe.metrics.confusion.confusion import (
    confused_counts,
    ic_error,
    ic_utility,
    property_generalisation,
    targeted_error,
)

METRICS = (targeted_error, property_generalisation, ic_error, ic_utility)


def matrices(seed: int, *, n_models: int = 4, n_classes: int = 5, forgotten=(1, 3)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 30, (n_models, 3, n_classes, n_classes))
    outside = [label for label in range(n_classes) if label not in forgotten]
    counts[:, :2, outside] = 0
    return counts


def literal_targeted(matrix: np.ndarray, classes) -> float:
    confused = sum(int(matrix[a, b]) for a in classes for b in classes if a != b)
    return confused / sum(int(matrix[a].sum()) for a in classes)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(1, 3), (0, 4), (0, 2, 4), (0, 1, 2, 3, 4)]))
def test_targeted_errors_equal_a_loop_over_pairs(seed, classes):
    u, r = matrices(seed, forgotten=classes), matrices(seed + 1, forgotten=classes)
    memory, generalisation = targeted_error(u, r), property_generalisation(u, r)
    assert memory.per_run.tolist() == pytest.approx([literal_targeted(m[1], classes) for m in u])
    assert generalisation.per_run.tolist() == pytest.approx([literal_targeted(m[2], classes) for m in u])
    assert memory.table["retrained"] == pytest.approx(np.mean([literal_targeted(m[1], classes) for m in r]))


def test_removed_class_is_counted_where_it_is_predicted():
    u = matrices(1, forgotten=(2,))
    u[:, 2, 2] = 0, 2, 5, 1, 2
    assert targeted_error(u, u, classes=(2,)).per_run.tolist() == (u[:, 1, 2, 2] / u[:, 1, 2].sum(axis=1)).tolist()
    assert property_generalisation(u, u).value == 0.5


def test_count_of_the_published_tables_is_kept():
    u = matrices(2)
    assert targeted_error(u, u).table["count"] == np.mean([m[1][1, 3] + m[1][3, 1] for m in u])


def test_never_predicting_the_classes_shows_in_the_error():
    u = matrices(3)
    u[:, :, :, [1, 3]] = 0
    assert targeted_error(u, u).value == 0.0
    assert ic_error(u, u).value == 1.0


def test_utility_looks_at_the_other_classes_only():
    u = matrices(4)
    changed = u.copy()
    changed[:, 2, [1, 3]] += 100
    assert ic_utility(changed, u).value == ic_utility(u, u).value
    assert ic_utility(u, u).value == pytest.approx(
        np.mean([1 - sum(m[2][c, c] for c in (0, 2, 4)) / m[2][[0, 2, 4]].sum() for m in u])
    )


def test_errors_on_given_and_true_labels_are_separate():
    u = matrices(5)
    u[:, 0] = np.eye(5, dtype=int)[None] * 7 * np.isin(np.arange(5), (1, 3))
    table = ic_error(u, u).table
    assert table["forget_error_given_labels"] == 0.0
    assert table["forget_error_true_labels"] > 0.0


@pytest.mark.parametrize("metric", METRICS)
def test_order_of_models_does_not_matter(metric):
    u, r = matrices(6), matrices(7)
    assert metric(u[::-1], r[::-1]).per_run.tolist() == metric(u, r).per_run[::-1].tolist()


@pytest.mark.parametrize("classes", [(1, 1), (0, 5), ()])
def test_classes_that_are_none_are_refused(classes):
    with pytest.raises(InvalidMetricInput, match=r"within 0\.\.4"):
        targeted_error(matrices(11), matrices(11), classes=classes)


def test_empty_set_is_refused():
    with pytest.raises(InvalidMetricInput, match="no image of classes"):
        targeted_error(matrices(12), matrices(12), classes=(0, 2))


def test_utility_without_another_class_is_refused():
    everything = matrices(13, forgotten=(0, 1, 2, 3, 4))
    with pytest.raises(InvalidMetricInput, match="no other class"):
        ic_utility(everything, everything)


def test_confusions_are_counted_both_ways():
    matrix = np.array([[9, 1, 3], [5, 9, 0], [3, 0, 9]])
    assert confused_counts(matrix, (0, 1, 2)) == 12
    assert confused_counts(matrix, (0, 1)) == 6
