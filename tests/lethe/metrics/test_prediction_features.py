import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics.attacks.svc_efficacy import (
    confidence,
    correctness,
    entropy,
    modified_entropy,
    modified_entropy_published,
)


def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(4), 12), rng.integers(0, 4, 12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_features_equal_their_formulas(seed):
    p, y = draw(seed)
    rows = range(len(y))
    assert confidence(p, y).tolist() == [p[i][y[i]] for i in rows]
    assert entropy(p).tolist() == pytest.approx([-sum(x * math.log(x) for x in p[i]) for i in rows])
    expected = [
        -(1 - p[i][y[i]]) * math.log(p[i][y[i]]) - sum(p[i][c] * math.log(1 - p[i][c]) for c in range(4) if c != y[i])
        for i in rows
    ]
    assert modified_entropy(p, y).tolist() == pytest.approx(expected)


def test_certain_predictions_have_finite_features():
    p = np.eye(3)
    assert entropy(p).tolist() == [0.0, 0.0, 0.0]
    assert modified_entropy(p, np.array([0, 1, 2])).tolist() == [0.0, 0.0, 0.0]
    assert np.isfinite(modified_entropy(p, np.array([1, 2, 0]))).all()


def test_correctness_is_one_where_the_label_is_likeliest():
    assert correctness(np.array([[0.6, 0.4], [0.6, 0.4]]), np.array([0, 1])).tolist() == [1.0, 0.0]


def test_published_modified_entropy_depends_on_the_other_labels():
    p, _ = draw(1)
    alone = modified_entropy_published(p[:1], np.array([0]))
    among = modified_entropy_published(p, np.arange(12) % 4)
    assert alone[0] != among[0]
    expected = -((1 - p[0]) * np.log(p[0])).sum()  # every label occurs, so p and 1 - p are exchanged everywhere
    assert among[0] == pytest.approx(expected)
