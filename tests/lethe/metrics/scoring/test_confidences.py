"""The logit-scaled confidence."""

from pathlib import Path

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.confidences import logit_scaled_confidences

GOLDEN = np.load(Path(__file__).parents[3] / "golden" / "epsilon_golden.npz")


def test_confidences_are_those_of_the_published_program():
    """Their exponentials are float32: another processor may round the last bit otherwise."""
    found = logit_scaled_confidences(GOLDEN["logits"], GOLDEN["targets"])
    np.testing.assert_allclose(found, GOLDEN["logit_scaled_confidence"], rtol=1e-6, atol=1e-6, strict=True)


def test_the_logits_are_left_unchanged():
    logits = GOLDEN["logits"].copy()
    logit_scaled_confidences(logits, GOLDEN["targets"])
    np.testing.assert_array_equal(logits, GOLDEN["logits"])


def test_two_classes_give_the_difference_of_the_logits():
    found = logit_scaled_confidences(np.array([[2.0, -1.0], [0.0, 0.0]]), np.array([0, 1]))
    np.testing.assert_allclose(found, [3.0, 0.0], atol=1e-12)


def test_the_statistic_saturates_near_103_6():
    found = logit_scaled_confidences(np.array([[1e4, 0.0], [0.0, 1e4]]), np.array([0, 0]))
    np.testing.assert_allclose(found, [103.28, -103.28], atol=0.5)


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (np.zeros((2, 3), np.float16), [0, 1], "float32 or float64, not float16"),
        (np.zeros((2, 1), np.float32), [0, 0], "n_classes >= 2"),
        (np.zeros((2, 3), np.float32), [0], "targets must be 2 integers"),
        (np.zeros((2, 3), np.float32), [0.0, 1.0], "targets must be 2 integers"),
        (np.zeros((2, 3), np.float32), [0, 3], "target of example 1 is 3"),
        (np.zeros((2, 3), np.float32), [-1, 0], "target of example 0 is -1"),
        (np.array([[0, 1], [np.nan, 0]], np.float32), [0, 1], "logits of example 1 are not finite"),
    ],
)
def test_what_has_no_confidence_is_refused(logits, targets, message):
    with pytest.raises(InvalidScoreInput, match=message):
        logit_scaled_confidences(logits, np.array(targets))
