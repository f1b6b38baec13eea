"""When two machines' outputs of the same runs count as the same."""

import numpy as np
import pytest
from numpy.typing import NDArray

from server.workers.verification import find_difference

Arrays = dict[str, NDArray[np.generic]]


def outputs(**changes: NDArray[np.generic]) -> Arrays:
    arrays: Arrays = {
        "confidences": np.zeros((2, 5)),
        "retain_accuracy": np.full(2, 0.9),
        "class_accuracy": np.array([[[0.5, np.nan]] * 2] * 2, dtype=np.float32),
        "forget_correct": np.ones((2, 100), dtype=np.bool_),
        "forget_logits": np.full((2, 5, 3), 20.0, dtype=np.float32),
    }
    return arrays | changes


def altered(name: str, place: tuple[int | slice, ...], value: float | bool) -> Arrays:
    array = outputs()[name].copy()
    array[place] = value
    return outputs(**{name: array})


def test_same_outputs_do_not_differ_even_by_a_bit() -> None:
    assert find_difference(outputs(), outputs(), tolerance=0.0) is None


@pytest.mark.parametrize(
    ("there", "array"),
    [
        (altered("confidences", (1, 3), 0.011), "confidences"),
        (altered("confidences", (1, 3), np.nan), "confidences"),
        (altered("retain_accuracy", (1,), 0.92), "retain_accuracy"),
        (altered("class_accuracy", (0, 0, 1), 0.5), "class_accuracy"),
        (altered("forget_correct", (0, slice(0, 3)), False), "forget_correct"),
        (altered("forget_logits", (1,), 20.5), "forget_logits"),
        (outputs(confidences=np.zeros((2, 4))), "confidences"),
        (outputs(confidences=np.zeros((2, 5), dtype=np.float32)), "confidences"),
        ({name: array for name, array in outputs().items() if name != "forget_logits"}, "names of arrays"),
    ],
)
def test_array_beyond_the_tolerance_is_named(there: Arrays, array: str) -> None:
    found = find_difference(there, outputs(), tolerance=0.01)
    assert found is not None
    assert found.array == array


@pytest.mark.parametrize(
    "there",
    [
        altered("confidences", (1, 3), 0.009),
        altered("retain_accuracy", (1,), 0.905),
        altered("forget_correct", (0, 7), False),
        altered("forget_logits", (1,), 20.1),
    ],
)
def test_array_within_the_tolerance_is_the_same(there: Arrays) -> None:
    assert find_difference(there, outputs(), tolerance=0.01) is None
