"""Confidences on another scale than logits are noticed, those of unlearned models are not."""

import numpy as np
import pytest

from lethe.metrics.core.input_warnings import scale_warnings

DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(2.0, 3.0, (16, 8))
PROBABILITIES = 1 / (1 + np.exp(-LOGITS))


def test_logits_of_unlearned_models_are_taken_as_they_are() -> None:
    assert scale_warnings(LOGITS * 2.5 - 4.0, LOGITS) == []


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (PROBABILITIES, "probabilities"),
        (100 * PROBABILITIES, "percentages"),
        (np.log(PROBABILITIES), "log-probabilities"),
        (20 * LOGITS, "spread 20 times"),
    ],
)
def test_other_scale_is_named_with_its_side(values: np.ndarray, named: str) -> None:
    (first,) = scale_warnings(values, LOGITS)
    assert "unlearned" in first
    assert named in first
    (second,) = scale_warnings(LOGITS, values)
    assert "retrained" in second


def test_nothing_is_said_of_a_handful_of_values() -> None:
    assert scale_warnings(PROBABILITIES[:1], LOGITS[:1]) == []
