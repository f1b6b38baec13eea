"""What N can show, and F without its dependence on N."""

import numpy as np
import pytest

from lethe.metrics import Inputs, evaluate
from lethe.metrics.forgetting.final_score import SHIFTS, normal_curve, shift_of
from lethe.metrics.scoring.attacks.family import (
    DELTA,
    EPSILON_CAP,
    AttackFamily,
    few_models_warnings,
    smallest_detectable_shift,
)

SETTINGS = AttackFamily.REFERENCE, DELTA, EPSILON_CAP


def side(seed, n, shift=0.0):
    return {"confidences": 3.0 + 2.0 * (np.random.default_rng(seed).normal(size=(n, 400)) + shift)}


def test_smallest_detectable_shift_in_closed_form():
    assert smallest_detectable_shift(512) == pytest.approx(2.80159 * np.sqrt(2 / 512), rel=1e-5)


def test_warning_below_64_models_only():
    assert few_models_warnings(64) == []
    assert "N = 63 is below 64" in few_models_warnings(63)[0]


def test_curve_falls_and_is_read_backwards():
    curve = normal_curve(32, SETTINGS)
    assert (np.diff(curve) <= 0.0).all()
    assert shift_of(float(curve[12]), curve) == pytest.approx(SHIFTS[12])
    assert shift_of(1.0, curve) == 0.0
    assert shift_of(-1.0, curve) == SHIFTS[-1]


@pytest.mark.parametrize("metric_id", ["equivalent_shift", "equivalent_shift_oracle"])
def test_equal_shifts_have_equal_values_at_every_n(metric_id):
    found = {}
    for n in (16, 64, 256):
        inputs = Inputs(unlearned=side(1, n, 1.0), retrained=side(2, n), oracle=side(3, n))
        found[n] = evaluate(inputs, [(metric_id, {"attacks": "reference"}), ("f", {"attacks": "reference"})])
    shifts = [results[metric_id].result.value for results in found.values()]
    assert shifts == pytest.approx([1.0] * 3, abs=0.25)
    shares = [results["f"].result.value / results["f"].oracle.value for results in found.values()]
    assert shares[0] > 3 * shares[-1]  # what the correction is for


def test_oracle_itself_has_no_shift():
    inputs = Inputs(unlearned=side(3, 16), retrained=side(2, 16), oracle=side(3, 16))
    assert evaluate(inputs, ["equivalent_shift_oracle"])["equivalent_shift_oracle"].result.value == 0.0
