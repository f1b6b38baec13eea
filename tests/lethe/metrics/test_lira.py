import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.membership.lira import lira, online_scores
from tests.lethe.metrics.literal_attacks import lira_online


def draw(seed: int, shift: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    keep = np.argsort(rng.random((20, 15)), axis=0) < 10
    scores = rng.normal(0, 1, (20, 15, 2)) + shift * keep[:, :, None]
    return scores[:-3], keep[:-3], scores[-3:], keep[-3:]


def test_online_attack_equals_a_loop_over_examples():
    shadows, keep, targets, answers = draw(1)
    n = min(keep.sum(axis=0).min(), (~keep).sum(axis=0).min())
    # the program uses equally many models of every example; a table where they are equal makes both the same
    keep = np.zeros_like(keep)
    keep[:n] = True
    result = lira(shadows, keep, targets, answers)
    area, accuracy = lira_online(shadows, keep, targets, answers)
    assert result.value == pytest.approx(area, abs=1e-12)
    assert result.table["accuracy"] == pytest.approx(accuracy, abs=1e-12)


@pytest.mark.parametrize("attack", ["online", "online_fixed", "offline", "offline_fixed", "threshold"])
def test_every_attack_finds_members_that_stand_out(attack):
    assert lira(*draw(2, shift=8.0), attack=attack).value > 0.95


def test_fixed_variance_is_that_of_the_members_in_both_worlds():
    shadows, keep, targets, _ = draw(3)
    widened = np.where(keep[:, :, None], shadows, 5.0 * shadows)
    scores = online_scores(widened, keep, targets, fixed_variance=True)
    fewest = keep.sum(axis=0).min()
    members = np.stack([widened[keep[:, j], j][:fewest] for j in range(15)])
    outside = np.stack([widened[~keep[:, j], j][: (~keep).sum(axis=0).min()] for j in range(15)])
    m_in, m_out, variance = np.median(members, 1), np.median(outside, 1), members.std() ** 2
    expected = (((targets - m_out) ** 2 - (targets - m_in) ** 2) / (2 * variance)).mean(axis=2)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)


def test_example_that_every_shadow_was_trained_on_is_refused():
    shadows, keep, targets, answers = draw(4)
    keep[:, 6] = True
    with pytest.raises(InvalidMetricInput, match="example 6 is in all or in none"):
        lira(shadows, keep, targets, answers)


def test_keep_of_another_type_is_refused():
    shadows, keep, targets, answers = draw(5)
    with pytest.raises(InvalidMetricInput, match="shadow keep must be bool"):
        lira(shadows, keep.astype(int), targets, answers)
