"""Captured arrays: what they are, and that capturing changes no bit of the score's arrays."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lethe.evaluation.shard_outputs import (
    CapturedSets,
    capture,
    confusion,
    cross_entropy,
    half_precision,
    retain_subset,
)


def sets(seed: int = 0, *, swapped: bool = False) -> CapturedSets:
    random = np.random.default_rng(seed)

    def logits(n: int) -> np.ndarray:
        return random.normal(0, 3, (n, 4)).astype(np.float32)

    labels = {name: random.integers(0, 4, n) for name, n in (("forget", 6), ("retain", 40), ("test", 10))}
    return CapturedSets(
        forget=logits(6),
        retain=logits(40),
        test=logits(10),
        forget_labels=labels["forget"],
        retain_labels=labels["retain"],
        test_labels=labels["test"],
        true_forget_labels=(labels["forget"] + 1) % 4 if swapped else labels["forget"],
    )


def test_capture_stores_nothing_without_levels() -> None:
    assert capture((), sets()) == {}


def test_losses_are_cross_entropies_in_nats() -> None:
    found = sets()
    arrays = capture((1,), found)
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(found.test).double(), torch.from_numpy(found.test_labels), reduction="none"
    )
    np.testing.assert_allclose(arrays["test_loss"], expected.numpy(), rtol=1e-6)
    assert arrays["forget_correct"].tolist() == (found.forget.argmax(1) == found.forget_labels).tolist()
    assert set(arrays) == {"forget_correct", "forget_loss", "test_loss", "retain_loss"}


def test_retain_arrays_are_of_the_stored_subset() -> None:
    found = sets()
    kept = retain_subset(40, n_forget=6, n_test=10)
    assert len(kept) == 10
    np.testing.assert_array_equal(
        capture((1,), found)["retain_loss"], cross_entropy(found.retain[kept], found.retain_labels[kept])
    )


def test_confusion_counts_given_true_and_test_labels() -> None:
    found = sets(swapped=True)
    counts = capture((3,), found)["confusion"]
    assert counts.shape == (3, 4, 4)
    assert counts.sum(axis=(1, 2)).tolist() == [6, 6, 10]
    np.testing.assert_array_equal(counts[0].sum(axis=1), np.bincount(found.forget_labels, minlength=4))
    np.testing.assert_array_equal(counts[1].sum(axis=1), np.bincount(found.true_forget_labels, minlength=4))
    np.testing.assert_array_equal(counts[2], confusion(found.test, found.test_labels))


def test_half_precision_keeps_large_logits_finite() -> None:
    assert np.isfinite(half_precision(np.array([[1e9, -1e9]], dtype=np.float32))).all()


@given(n_retain=st.integers(1, 200), n_forget=st.integers(1, 50), n_test=st.integers(1, 50))
def test_retain_subset_is_a_fixed_ascending_sample(n_retain: int, n_forget: int, n_test: int) -> None:
    kept = retain_subset(n_retain, n_forget=n_forget, n_test=n_test)
    assert len(kept) == min(n_retain, max(n_forget, n_test))
    assert (np.diff(kept) > 0).all()
    np.testing.assert_array_equal(kept, retain_subset(n_retain, n_forget=n_forget, n_test=n_test))


@pytest.mark.parametrize("labels", [[0, 3], [1, 1]])
def test_confusion_of_perfect_predictions_is_diagonal(labels: list[int]) -> None:
    logits = np.eye(4, dtype=np.float32)[labels]
    counts = confusion(logits, np.array(labels))
    assert counts.trace() == counts.sum() == 2
