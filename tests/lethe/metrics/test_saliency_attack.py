"""The attack on saliency maps: cases whose accuracy is known, and MIAU of it."""

import numpy as np
import pytest
from scipy.stats import hypergeom

from lethe.metrics import Inputs, evaluate
from lethe.metrics.attacks.membership_features import saliency_attack_percent

SIZE = 50  # 40 train, 10 are held out of each set


def maps(column: np.ndarray, *, n_models: int = 1) -> np.ndarray:
    """Return maps whose first pixel is the column and whose second says nothing."""
    return np.broadcast_to(np.stack([column, np.zeros(len(column))], axis=1), (n_models, len(column), 2))


def attack(members: np.ndarray, others: np.ndarray, **settings: float) -> list[float]:
    return saliency_attack_percent(members, others, task=0, **settings).tolist()


def test_apart_sets_are_told_apart():
    assert attack(maps(np.ones(SIZE), n_models=3), maps(np.zeros(SIZE), n_models=3)) == [100.0] * 3


def test_constant_maps_say_nothing():
    assert attack(maps(np.zeros(SIZE)), maps(np.zeros(SIZE))) == [50.0]


def test_values_that_both_sets_have_as_often_score_below_chance():
    """What is more frequent in one set's training part is less frequent in its held-out part, by as much.

    Held-out members with the value 1 are X, others Y, both hypergeometric; a split is right in 50 - 5 |X - Y| percent.
    """
    tied = np.arange(SIZE) % 2
    chances = hypergeom(SIZE, SIZE // 2, 10).pmf(np.arange(11))
    apart = np.abs(np.subtract.outer(np.arange(11), np.arange(11)))
    expected = 50.0 - 5.0 * float(chances @ apart @ chances)
    assert expected == pytest.approx(42.0, abs=0.1)
    assert attack(maps(tied), maps(tied), n_splits=300, trees=3) == [pytest.approx(expected, abs=1.0)]


def test_half_of_the_members_have_a_value_of_their_own():
    """Of the value that both sets have two thirds are others: held-out members are right where they are apart."""
    members, others = np.repeat([1.0, 0.0], SIZE // 2), np.zeros(SIZE)
    assert attack(maps(members), maps(others), n_splits=300, trees=3) == [pytest.approx(75.0, abs=1.5)]


def test_two_pixels_that_only_together_say_something():
    """A linear attack has 50; trees of depth 2 and more see that the pixels are equal for members alone."""
    bits = np.arange(4 * SIZE) % 4
    first, second = bits % 2, bits // 2
    pixels = np.stack([first, second], axis=1).astype(float) + 0.01 * np.arange(4 * SIZE)[:, None] / SIZE
    equal = first == second
    found = attack(pixels[None, equal], pixels[None, ~equal], n_splits=20)
    assert found == [pytest.approx(100.0, abs=3.0)]
    assert attack(pixels[None, equal], pixels[None, ~equal], n_splits=20, depth=1)[0] < 75.0


def test_larger_set_is_cut_to_the_smaller():
    assert attack(maps(np.ones(SIZE)), maps(np.zeros(3 * SIZE))) == [100.0]
    few = attack(maps(np.ones(6)), maps(np.zeros(60)))  # 5 members train: a leaf of 4 is allowed
    assert few == [100.0]


def test_sets_too_small_for_a_leaf_say_nothing():
    assert attack(maps(np.ones(4)), maps(np.zeros(4))) == [50.0]


def test_runs_of_one_model_draw_apart():
    rng = np.random.default_rng(0)
    one = np.broadcast_to(rng.normal(size=(1, SIZE, 2)), (6, SIZE, 2))
    two = np.broadcast_to(rng.normal(size=(1, SIZE, 2)), (6, SIZE, 2))
    found = attack(one, two)
    assert len(set(found)) > 1
    assert found == attack(one, two)


def test_accuracy_is_that_of_a_slow_program():
    rng = np.random.default_rng(1)
    members, others = rng.normal(0.7, size=(1, SIZE, 3)), rng.normal(size=(1, SIZE, 3))
    draws = np.random.default_rng([5, 0, 0])
    a, b = (values[0][draws.permutation(SIZE)] for values in (members, others))
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415  the oracle alone needs it

    oracle = HistGradientBoostingClassifier(
        max_iter=100, max_depth=6, learning_rate=0.3, l2_regularization=1.0, min_samples_leaf=4, max_leaf_nodes=None,
        early_stopping=False,
    )  # fmt: skip
    oracle.fit(np.concatenate([a[10:], b[10:]]), [True] * 40 + [False] * 40)
    right = oracle.predict(a[:10]).sum() + (~oracle.predict(b[:10])).sum()
    assert attack(members, others, seed=5) == [pytest.approx(5.0 * right)]


def side(forget: float, *, n_models: int) -> dict[str, np.ndarray]:
    """Return maps of a side: test examples are 0, retain examples 1, forget examples as given."""
    values = {"forget": np.full(SIZE, forget), "retain": np.ones(2 * SIZE), "test": np.zeros(SIZE)}
    return {f"{name}_saliency": maps(column, n_models=n_models) for name, column in values.items()}


def evaluated(unlearned: float, metric_id: str, *, n_models: int = 2) -> float:
    known = {"unlearned": unlearned, "retrained": 0.0, "oracle": 0.0, "original": 1.0}
    sides = {name: side(forget, n_models=1 if name == "original" else n_models) for name, forget in known.items()}
    found = evaluate(Inputs(**sides, shared={}), [metric_id])[metric_id]
    assert found.not_computed == ""
    assert found.result is not None
    return found.result.value


def test_attacks_of_a_model_that_forgot():
    values = {task: evaluated(0.0, f"mia_saliency_{task}") for task in ("forget_retain", "forget_test", "test_retain")}
    assert values == {"forget_retain": 100.0, "forget_test": 50.0, "test_retain": 100.0}


@pytest.mark.parametrize("n_models", [1, 2])
@pytest.mark.parametrize(
    ("unlearned", "value"),
    [(0.0, (2 * 99.8993 + 0.1007) / 3), (1.0, 0.1007)],  # test against retain has no gap: f = 0
)
def test_miau_of_retrained_and_of_original_maps(unlearned, value, n_models):
    assert evaluated(unlearned, "miau_saliency", n_models=n_models) == pytest.approx(value, abs=1e-3)


def test_missing_maps_are_named_with_what_makes_them():
    found = evaluate(Inputs({}, {}, {}, {}), ["miau_saliency"])["miau_saliency"]
    assert "no capture stores it: compute `forget_saliency` [N, S, X]" in found.not_computed
