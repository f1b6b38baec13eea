"""The part of a distance that harmless retraining has too."""

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.core.result import MetricResult
from lethe.metrics.distribution.recipe_spread import DISTANCES, ModelGroup, recipe_spread

S = 12
SETTINGS = [[15.0, 0.0, 64.0, 0.0], [20.0, 5e-4, 64.0, 1.0]]


def runs(seed: int, n_models: int = 16, *, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_models, S)) + shift


def accuracies(n_models: int = 16, *, value: float = 0.5) -> np.ndarray:
    return np.full(n_models, value)


def spread(unlearned: np.ndarray, *, recipes: tuple[float, float] = (0.5, 1.0), **changed: np.ndarray) -> MetricResult:
    models = changed.get("recipe_confidences", np.stack([runs(10 + i, shift=by) for i, by in enumerate(recipes)]))
    given = {
        "retrained": runs(2),
        "oracle": runs(3),
        "recipe_confidences": models,
        "recipe_test_accuracy": np.full(models.shape[:2], 0.5),
        "recipe_settings": SETTINGS,
    } | changed
    tests = {f"{side}_test": accuracies(len(given[side])) for side in ("retrained", "oracle")}
    return recipe_spread(unlearned=unlearned, unlearned_test=accuracies(len(unlearned)), **tests, **given)


def test_exact_retraining_lies_within() -> None:
    assert spread(runs(3)).value == 1.0


def test_a_harmless_recipe_lies_within() -> None:
    assert spread(runs(11, shift=1.0)).value == pytest.approx(1.0, abs=1e-9)


def test_share_of_a_shift_is_by_hand() -> None:
    """One example, spread 1, no noise between the sides: the shift is the difference of the means."""
    base = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    found = recipe_spread(
        base + 4.0,
        accuracies(4),
        base,
        accuracies(4),
        base,
        accuracies(4),
        [base + 1.0],
        np.full((1, 4), 0.5),
        SETTINGS[:1],
    )
    assert found.table["shift_entry"] == 4.0
    assert found.table["shift_standard"] == 0.0
    assert found.table["shift"] == [1.0]
    assert found.table["shift_share"] == 0.25
    assert found.interval is None
    assert found.value <= 0.25


def test_larger_distance_has_a_smaller_share() -> None:
    shares = [spread(runs(4, shift=by)).table["shift_share"] for by in (1.5, 3.0, 6.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.2


def test_every_distance_is_in_the_table() -> None:
    table = spread(runs(4, shift=2.0)).table
    assert {f"{name}_share" for name in DISTANCES} <= set(table)
    assert table["variation"] == [
        "epochs 15, weight decay 0, batch size 64, augmentation none",
        "epochs 20, weight decay 0.0005, batch size 64, augmentation flip",
    ]


def test_unequal_numbers_of_models_are_cut_into_blocks() -> None:
    found = spread(runs(4, 70, shift=2.0), retrained=runs(2, 64), oracle=runs(3, 48))
    assert (found.table["models"], found.table["blocks"]) == (16, 3)
    assert found.interval is not None
    assert found.interval[0] <= found.value <= found.interval[1]


def test_one_model_is_refused() -> None:
    with pytest.raises(InvalidMetricInput, match="at least 3 models of every side, not 1"):
        spread(runs(4, 1))


def test_constant_retrained_models_leave_the_shift_out() -> None:
    same = np.zeros((16, S))
    found = spread(same, retrained=same, oracle=same, recipe_confidences=np.zeros((2, 16, S)))
    assert "shift is not defined for these arrays: left out" in found.notes
    assert found.value == 1.0


def test_ties_between_entry_and_standard_are_within() -> None:
    one = ModelGroup(runs(2), accuracies())
    assert all(DISTANCES[name](one, one) == 0.0 for name in ("shift", "forget_probability_gap", "test_accuracy_gap"))
    assert spread(runs(3), recipes=(0.0, 0.0)).value == 1.0
