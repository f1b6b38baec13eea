"""Knowledge after the worst attack, by hand."""

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.weights.probes import ATTACKS, robustness

G = len(ATTACKS)


def knowledge(n_models: int = 3, **after: float) -> np.ndarray:
    rows = np.full((n_models, G), 0.5)
    for attack, value in after.items():
        rows[:, ATTACKS.index(attack.replace("_", "-"))] = value
    return rows


def test_worst_attack_is_the_value() -> None:
    found = robustness(knowledge(quantise_4=0.9, retain_3=0.7), knowledge(2, quantise_4=0.6, retain_3=0.6))
    assert found.value == pytest.approx(0.3)
    assert found.table["worst"] == "quantise-4"
    place = ATTACKS.index("quantise-4")
    assert (found.table["unlearned"][place], found.table["retrained"][place]) == pytest.approx((0.9, 0.6))


def test_knowledge_that_both_sides_get_back_is_no_residue() -> None:
    assert robustness(knowledge(relearn_5=1.0), knowledge(relearn_5=1.0)).value == 0.0


def test_ties_name_the_first_attack() -> None:
    assert robustness(knowledge(), knowledge()).table["worst"] == "none"


def test_less_than_retrained_everywhere_is_negative() -> None:
    assert robustness(np.zeros((1, G)), np.ones((1, G))).value == -1.0


def test_sides_stand_beside_each_other() -> None:
    found = robustness(knowledge(), knowledge(), np.ones((1, G)), np.array([1.0, 3.0]), np.array([0.5]))
    assert found.table["original"] == [1.0] * G
    assert (found.table["unlearned_barrier"], found.table["retrained_barrier"]) == (2.0, 0.5)


def test_wrong_values_are_named() -> None:
    with pytest.raises(InvalidMetricInput, match=r"must be of 13 attacks .* not 2"):
        robustness(np.ones((1, 2)), knowledge())
