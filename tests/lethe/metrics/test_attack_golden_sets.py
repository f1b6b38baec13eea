"""The values of the authors' programs, to the bit where their arithmetic is float64."""

from pathlib import Path

import numpy as np
import pytest

from tests.golden.attack_metric_sets import ATTACK_METRIC_SETS
from tests.golden.check import compare_file

LAB = Path(__file__).parents[2] / "golden" / "lab"


def exact_values(name: str) -> frozenset[tuple[str, str]]:
    with np.load(LAB / f"{name}.npz") as file:
        outputs = [key.removeprefix("out_") for key in file.files if key.startswith("out_")]
    return frozenset((name, value) for value in outputs if value not in ATTACK_METRIC_SETS[name].float32)


@pytest.mark.parametrize("name", ATTACK_METRIC_SETS)
def test_attack_sets_equal_the_authors_values(name):
    lines = list(compare_file(LAB / f"{name}.npz", exact=exact_values(name)))
    assert any(line.within for line in lines)
    assert [line for line in lines if line.within is False] == []
