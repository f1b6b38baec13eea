"""KLOM by hand, against a literal transcription, and where it is not defined."""

import math
import time

import numpy as np
import pytest
from scipy.stats import entropy

import lethe.metrics.outputs.klom as module
from lethe.metrics.outputs.klom import binned_divergence, klom, klom_closed


def literal(unlearned: np.ndarray, retrained: np.ndarray) -> np.ndarray:
    """Return the binned divergence of every example: numpy's digitize, scipy's entropy."""
    return np.array([literal_of_example(unlearned[:, s], retrained[:, s]) for s in range(unlearned.shape[1])])


def literal_of_example(unlearned: np.ndarray, retrained: np.ndarray) -> float:
    p, q = np.clip(retrained, -100.0, 100.0), np.clip(unlearned, -100.0, 100.0)
    edges = np.linspace(min(p.min(), q.min()), max(p.max(), q.max()), 21)
    p_share, q_share = (np.array([(np.digitize(x, edges) == i).sum() for i in range(1, 21)]) for x in (p, q))
    p_share, q_share = p_share / p_share.sum(), q_share / q_share.sum()
    return float(entropy(p_share, np.where(p_share > 0.0, np.maximum(q_share, 1e-5), q_share)))


@pytest.mark.parametrize("seed", range(5))
def test_divergence_is_the_transcriptions_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    u, r = rng.normal(0.5, 2.0, (40, 7)), rng.normal(0.0, 1.0, (30, 7))
    assert binned_divergence(u, r).tolist() == literal(u, r).tolist()


def test_divergence_by_hand():
    # two bins on [0, 2]; the greatest margin, 2, is outside the last bin as published
    u, r = np.array([[0.0], [1.5], [2.0], [1.5]]), np.array([[0.0], [0.5], [1.0], [1.0]])
    by_hand = 0.5 * math.log(0.5 / (1 / 3)) + 0.5 * math.log(0.5 / (2 / 3))
    assert binned_divergence(u, r, bins=2)[0] == pytest.approx(by_hand)
    closed = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert binned_divergence(u, r, bins=2, closed=True)[0] == pytest.approx(closed)


def test_equal_margins_everywhere_have_no_divergence():
    assert binned_divergence(np.ones((3, 1)), np.ones((4, 1))).tolist() == [0.0]


def test_margins_beyond_the_clip_count_as_the_clip():
    u, r = np.array([[0.0], [500.0]]), np.array([[0.0], [100.0]])
    assert binned_divergence(u, r).tolist() == [0.0]


def test_example_without_a_value_is_noted_and_left_out():
    u, r = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[2.0, 0.0], [2.0, 1.0]])
    found = klom(u, r)
    assert math.isnan(found.per_example[0])
    assert found.value == 0.0
    assert found.table["undefined"] == 1
    assert "1 examples have no divergence" in found.notes[0]
    assert klom_closed(u, r).table["undefined"] == 0


def test_value_is_the_95th_percentile():
    rng = np.random.default_rng(0)
    found = klom(rng.normal(size=(20, 50)), rng.normal(size=(20, 50)))
    assert found.value == np.percentile(found.per_example, 95)


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
