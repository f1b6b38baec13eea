import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics import InvalidMetricInput
from lethe.metrics.attacks.classwise_attack import Scored, attack_accuracy, class_thresholds, classwise_accuracies
from lethe.metrics.core.derived_arrays import softmax
from tests.lethe.metrics.literal_attacks import threshold_accuracy

SETTINGS = {"feature": "confidence", "repetitions": 5, "exchanged": None, "seed": 0}
LABELS = np.repeat([0, 1, 2], 12)


def probabilities(seed: int, labels: np.ndarray, *, n_models: int = 3, pull: float = 0.0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 1, (n_models, labels.size, 4))
    logits[:, np.arange(labels.size), labels] += pull
    return softmax(logits)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 6))
def test_accuracy_equals_a_loop_over_values(seed, n_classes, n_levels):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 30, 4)
    labels = [rng.integers(0, n_classes, size) for size in sizes]
    values = [rng.integers(0, n_levels, size) / n_levels - 0.5 for size in sizes]
    found = attack_accuracy(*(Scored(v, y) for v, y in zip(values, labels, strict=True)), n_classes=n_classes)
    assert found[1] == threshold_accuracy(values, labels, n_classes)


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
