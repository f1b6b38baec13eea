"""KLOM and targeted errors: by hand and against literal transcriptions."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lethe.metrics.outputs.histograms as module
from lethe.metrics import InvalidMetricInput
from lethe.metrics.accuracy.confusion import (
    confused_counts,
    ic_error,
    ic_utility,
    property_generalisation,
    targeted_error,
)
from lethe.metrics.outputs.histograms import binned_divergence, klom, klom_closed


def test_divergence_by_hand():
    # two bins on [0, 2]; the greatest margin, 2, is outside the last bin as published
    u, r = np.array([[0.0], [1.5], [2.0], [1.5]]), np.array([[0.0], [0.5], [1.0], [1.0]])
    by_hand = 0.5 * math.log(0.5 / (1 / 3)) + 0.5 * math.log(0.5 / (2 / 3))
    assert binned_divergence(u, r, bins=2)[0] == pytest.approx(by_hand)
    closed = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert binned_divergence(u, r, bins=2, closed=True)[0] == pytest.approx(closed)


def test_margins_beyond_the_clip_count_as_the_clip_and_the_95th_percentile_is_the_value():
    u, r = np.array([[0.0], [500.0]]), np.array([[0.0], [100.0]])
    assert binned_divergence(u, r).tolist() == [0.0]
    rng = np.random.default_rng(0)
    found = klom(rng.normal(size=(20, 50)), rng.normal(size=(20, 50)))
    assert found.value == np.percentile(found.per_example, 95)


def test_example_without_a_value_is_noted_and_left_out():
    u, r = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[2.0, 0.0], [2.0, 1.0]])
    found = klom(u, r)
    assert math.isnan(found.per_example[0])
    assert found.value == 0.0
    assert found.table["undefined"] == 1
    assert "1 examples have no divergence" in found.notes[0]
    assert klom_closed(u, r).table["undefined"] == 0


def test_unlearned_margins_that_are_all_left_out_are_noted():
    """Equal copies of a model that knows an example better than every retrained one, as the original often does."""
    rng = np.random.default_rng(1)
    r = rng.normal(0.0, 1.0, (30, 4))
    u = np.repeat([[9.0, 0.0, 9.0, 500.0]], 20, axis=0)
    found = klom(u, r)
    assert found.table["uncounted"] == 3
    assert "in 3 of 4 examples every unlearned margin is the greatest of all" in found.notes[0]
    assert found.per_example[0] < 1.0 < klom_closed(u, r).per_example[0]
    assert klom_closed(u, r).table["uncounted"] == 0
    assert klom(np.ones((3, 1)), np.ones((4, 1))).table["uncounted"] == 0


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("size", [(2, 3), (40, 30), (255, 520)])
def test_counts_are_those_of_every_comparison(closed, size):
    rng = np.random.default_rng(2)
    u, r = (np.round(rng.normal(size=(n, 140)), 1).astype(np.float32) for n in size)
    u[:, 0] = r[:, 0] = 1.0  # all equal
    edges = np.linspace(np.minimum(u.min(0), r.min(0)), np.maximum(u.max(0), r.max(0)), 21, axis=1)
    above = np.stack([(u >= edge).sum(axis=0) for edge in edges.T], axis=1)
    expected = above[:, :-1] - above[:, 1:]
    expected[:, -1] += above[:, -1] * closed
    assert module._counts(u, edges, 100.0, closed).tolist() == expected.tolist()


def test_klom_costs_less_than_a_loop_of_histograms_from_the_first_call():
    rng = np.random.default_rng(3)
    u, r = rng.normal(0.5, 2.0, (128, 600)), rng.normal(size=(128, 600))

    def loop():
        for example in range(u.shape[1]):
            ends = min(u[:, example].min(), r[:, example].min()), max(u[:, example].max(), r[:, example].max())
            for side in (u, r):
                np.histogram(side[:, example], bins=20, range=ends)

    first = processor_time(lambda: klom(u, r))
    assert first < min(processor_time(loop) for _ in range(3))


def processor_time(function):
    """Return the processor time of a call, in seconds."""
    started = time.process_time()
    function()
    return time.process_time() - started


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
    assert memory.table["count"] == np.mean([confused_counts(m[1], classes) for m in u])
    assert memory.table["retrained"] == pytest.approx(np.mean([literal_targeted(m[1], classes) for m in r]))


def test_removed_class_is_counted_where_it_is_predicted():
    u = matrices(1, forgotten=(2,))
    u[:, 2, 2] = 0, 2, 5, 1, 2
    assert targeted_error(u, u, classes=(2,)).per_run.tolist() == (u[:, 1, 2, 2] / u[:, 1, 2].sum(axis=1)).tolist()
    assert property_generalisation(u, u).value == 0.5


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


@pytest.mark.parametrize(
    ("metric", "forgotten", "classes", "message"),
    [
        (targeted_error, (1, 3), (1, 1), r"within 0\.\.4"),
        (targeted_error, (1, 3), (0, 5), r"within 0\.\.4"),
        (targeted_error, (1, 3), (), r"within 0\.\.4"),
        (targeted_error, (1, 3), (0, 2), "no image of classes"),
        (ic_utility, (0, 1, 2, 3, 4), None, "no other class"),
    ],
)
def test_classes_without_an_error_are_refused(metric, forgotten, classes, message):
    counts = matrices(11, forgotten=forgotten)
    with pytest.raises(InvalidMetricInput, match=message):
        metric(counts, counts, classes=classes)
