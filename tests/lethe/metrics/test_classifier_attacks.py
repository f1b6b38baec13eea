"""Attacks by class thresholds and by boosting of saliency maps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from lethe.metrics import Inputs, InvalidMetricInput, evaluate
from lethe.metrics.attacks.classifier_attacks import Scored, attack_accuracy, class_thresholds, classwise_accuracies
from lethe.metrics.attacks.membership_features import saliency_attack_percent
from lethe.metrics.core.derived_arrays import softmax

SETTINGS = {"feature": "confidence", "repetitions": 5, "exchanged": None, "seed": 0}
LABELS = np.repeat([0, 1, 2], 12)


def probabilities(seed: int, labels: np.ndarray, *, n_models: int = 3, pull: float = 0.0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 1, (n_models, labels.size, 4))
    logits[:, np.arange(labels.size), labels] += pull
    return softmax(logits)


def one_class(members: list[float], others: list[float]) -> tuple[float, float]:
    inside, outside = np.array(members, np.float64), np.array(others, np.float64)
    labels = np.zeros(inside.size, np.int64), np.zeros(outside.size, np.int64)
    thresholds, _, accuracy = class_thresholds(inside, labels[0], outside, labels[1], 1)
    return thresholds[0], accuracy


def test_first_of_equal_thresholds_wins():
    assert one_class([3.0, 2.0], [1.0, 2.5]) == (3.0, 0.75)


def test_empty_side_has_threshold_zero():
    assert one_class([1.0], []) == (0.0, 0.0)


def test_class_without_shadow_examples_recognises_nothing():
    shadow, target = Scored(np.array([1.0]), np.array([0])), Scored(np.array([1.0, 5.0]), np.array([0, 1]))
    others = Scored(np.array([0.0, -5.0]), np.array([0, 1]))
    assert attack_accuracy(shadow, Scored(np.array([0.0]), np.array([0])), target, others, n_classes=2) == (1.0, 0.5)


@pytest.mark.parametrize("feature", ["confidence", "entropy", "modified_entropy"])
def test_members_that_stand_out_are_found(feature):
    forget, test = probabilities(1, LABELS, pull=12.0), probabilities(2, LABELS)
    assert classwise_accuracies(forget, test, LABELS, LABELS, **SETTINGS | {"feature": feature}).min() > 0.85


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_order_of_examples_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 50)
    labels[:3] = 0, 1, 2
    forget, test = probabilities(seed, LABELS), probabilities(seed + 1, labels)
    a, b = rng.permutation(LABELS.size), rng.permutation(labels.size)
    mixed = classwise_accuracies(forget[:, a], test[:, b], LABELS[a], labels[b], **SETTINGS)
    assert mixed.tolist() == classwise_accuracies(forget, test, LABELS, labels, **SETTINGS).tolist()


def test_other_classes_of_the_test_set_take_no_part():
    labels = np.append(LABELS, [3] * 20)
    test = probabilities(3, labels)
    forget = probabilities(4, LABELS)
    alone = classwise_accuracies(forget, test[:, :36], LABELS, LABELS, **SETTINGS)
    assert classwise_accuracies(forget, test, LABELS, labels, **SETTINGS).tolist() == alone.tolist()


def test_exchanged_test_labels_take_the_label_of_the_forget_set():
    swapped = np.array([1, 0, 2])[LABELS]
    forget, test = probabilities(5, LABELS), probabilities(6, LABELS)
    by_hand = classwise_accuracies(forget, test, swapped, swapped, **SETTINGS)
    assert (
        classwise_accuracies(forget, test, swapped, LABELS, **SETTINGS | {"exchanged": (0, 1)}).tolist()
        == by_hand.tolist()
    )


def test_classes_without_test_examples_are_refused():
    arrays = probabilities(7, LABELS), probabilities(8, LABELS), LABELS, np.full(36, 3)
    with pytest.raises(InvalidMetricInput, match="needs 2 forget and 2 test examples"):
        classwise_accuracies(*arrays, **SETTINGS)


SIZE = 50  # 40 train, 10 are held out of each set


def maps(column: np.ndarray, *, n_models: int = 1) -> np.ndarray:
    """Return maps whose first pixel is the column and whose second says nothing."""
    return np.broadcast_to(np.stack([column, np.zeros(len(column))], axis=1), (n_models, len(column), 2))


def attack(members: np.ndarray, others: np.ndarray, **settings: float) -> list[float]:
    return saliency_attack_percent(members, others, task=0, **settings).tolist()


def test_values_that_both_sets_have_as_often_score_below_chance():
    """What is more frequent in one set's training part is less frequent in its held-out part, by as much.

    Held-out members with the value 1 are X, others Y, both hypergeometric; a split is right in 50 - 5 |X - Y| percent.
    """
    tied = np.arange(SIZE) % 2
    chances = hypergeom(SIZE, SIZE // 2, 10).pmf(np.arange(11))
    apart = np.abs(np.subtract.outer(np.arange(11), np.arange(11)))
    expected = 50.0 - 5.0 * float(chances @ apart @ chances)
    assert expected == pytest.approx(42.0, abs=0.1)
    assert attack(maps(tied), maps(tied), n_splits=200, trees=3) == [pytest.approx(expected, abs=1.0)]


def test_two_pixels_that_only_together_say_something():
    """A linear attack has 50; trees of depth 2 and more see that the pixels are equal for members alone."""
    bits = np.arange(4 * SIZE) % 4
    first, second = bits % 2, bits // 2
    pixels = np.stack([first, second], axis=1).astype(float) + 0.01 * np.arange(4 * SIZE)[:, None] / SIZE
    equal = first == second
    found = attack(pixels[None, equal], pixels[None, ~equal], n_splits=20)
    assert found == [pytest.approx(100.0, abs=3.0)]
    assert attack(pixels[None, equal], pixels[None, ~equal], n_splits=20, depth=1)[0] < 75.0


@pytest.mark.parametrize(
    ("members", "others", "accuracy"),
    [
        (np.ones(SIZE), np.zeros(SIZE), 100.0),
        (np.zeros(SIZE), np.zeros(SIZE), 50.0),
        (np.ones(SIZE), np.zeros(3 * SIZE), 100.0),  # the larger set is cut to the smaller
        (np.ones(6), np.zeros(60), 100.0),  # 5 members train: a leaf of 4 is allowed
        (np.ones(4), np.zeros(4), 50.0),  # too small for a leaf
    ],
)
def test_maps_of_one_pixel_have_a_known_accuracy(members, others, accuracy):
    assert attack(maps(members, n_models=2), maps(others, n_models=2)) == [accuracy] * 2


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
    assert "no capture stores it: compute `retain_saliency` [N, R, X]" in found.not_computed
