"""The losses and weight operations agree with the values that the authors' own programs gave."""

from pathlib import Path

import numpy as np
import pytest

from tests.golden.method_sets import METHOD_SETS

LAB = Path(__file__).parents[2] / "golden" / "lab"
FLOAT32_RTOL, FLOAT32_ATOL = 2e-5, 2e-6


@pytest.mark.parametrize("name", sorted(METHOD_SETS))
def test_golden_values_of_methods_are_recomputed(name):
    stored = dict(np.load(LAB / f"{name}.npz", allow_pickle=False))
    given = {key.removeprefix("in_"): values for key, values in stored.items() if key.startswith("in_")}
    computed = METHOD_SETS[name].recompute(given)
    expected = {key.removeprefix("out_"): values for key, values in stored.items() if key.startswith("out_")}
    assert computed.keys() == expected.keys()
    for value_name, values in expected.items():
        if value_name in METHOD_SETS[name].float32:
            np.testing.assert_allclose(
                computed[value_name], values, rtol=FLOAT32_RTOL, atol=FLOAT32_ATOL, err_msg=value_name
            )
        else:
            np.testing.assert_array_equal(computed[value_name], values, err_msg=value_name)
