"""The crossfit attacks: against an enumeration of every interval, and against entries that unlearn nothing."""

import numpy as np
import pytest

from lethe.metrics.scoring.attacks.crossfit import (
    FLOOR,
    crossfit_epsilon,
    crossfit_epsilons,
    noise_widths,
    strongest_interval,
)
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import forgetting_quality
from lethe.metrics.scoring.score import ModelOutputs, score
from tests.support.entries_without_unlearning import BATTERY, HONEST, Confidences

DELTA = 1e-5
MAX_EPSILON = np.log((1 - DELTA - FLOOR) / FLOOR)


def epsilons(unlearned, retrained, seed=3):
    return crossfit_epsilon(unlearned, retrained, delta=DELTA, cap=50.0, seed=seed)


def quality(unlearned, retrained, seed=3):
    return forgetting_quality(epsilons(unlearned, retrained, seed), n_models=len(retrained))


def drawn(entry, n_models, seed):
    given = Confidences.drawn(n_models, 60, seed)
    return entry(given), given.retrained()


def rates(rule, unlearned, retrained):
    lower, upper, calls_unlearned = rule
    inside_u = np.mean((unlearned > lower) & (unlearned <= upper))
    inside_r = np.mean((retrained > lower) & (retrained <= upper))
    return (1 - inside_u, inside_r) if calls_unlearned else (1 - inside_r, inside_u)  # missed, false


def by_false(missed, false, floor):
    return max(1 - DELTA - max(missed, floor), floor) / max(false, floor)


def ratio_of_best_interval(unlearned, retrained):
    """The largest ratio over every interval between middles of neighbouring values, each way round."""
    floor = max(FLOOR, 0.5 / len(unlearned))
    values = np.sort(np.concatenate((unlearned, retrained)))
    cuts = [-np.inf, *((values[1:] + values[:-1]) / 2), np.inf]
    found = 1.0
    for i, lower in enumerate(cuts):
        for upper in cuts[i + 1 :]:
            for calls_unlearned in (True, False):
                missed, false = rates((lower, upper, calls_unlearned), unlearned, retrained)
                found = max(found, by_false(missed, false, floor), by_false(false, missed, floor))
    return found


def fitted_ratio(rank, n):
    side, first, inside, of_false = strongest_interval(rank, np.empty(n + 1, np.int32), n, DELTA)
    if side < 0:
        return 1.0
    ends = rank[1 - side]
    own = ends[first + inside] - (ends[first - 1] if first > 0 else 0)
    missed, false = 1 - own / n, inside / n
    floor = max(FLOOR, 0.5 / n)
    return by_false(missed, false, floor) if of_false else by_false(false, missed, floor)


@pytest.mark.parametrize("n", [2, 3, 5, 9, 24])
@pytest.mark.parametrize("shift", [0.0, 1.0, 8.0])
def test_fitted_rule_is_the_best_of_all_intervals(n, shift):
    rng = np.random.default_rng([n, int(shift)])
    for _ in range(20):
        sides = rng.normal(shift, 1.0, n), rng.normal(0.0, rng.uniform(0.2, 3.0), n)
        u, r = (np.sort(side) for side in sides)
        rank = np.zeros((2, n + 1), np.int32)
        rank[0, :n], rank[1, :n] = np.searchsorted(r, u), np.searchsorted(u, r)
        assert fitted_ratio(rank, n) == pytest.approx(ratio_of_best_interval(u, r), rel=1e-12)


def test_separated_sides_have_the_largest_epsilon():
    rng = np.random.default_rng(0)
    for n in (64, 512):
        u, r = rng.normal(100.0, 1.0, (n, 3)), rng.normal(0.0, 1.0, (n, 3))
        assert epsilons(u, r) == pytest.approx([MAX_EPSILON] * 3, abs=0.1)


def test_epsilon_by_hand_of_a_separated_example():
    # Four models a side: two to fit on, two to judge; rates are floored at half a model of two.
    u, r = np.array([[9.0], [9.1], [9.2], [9.3]]), np.array([[0.0], [0.1], [0.2], [0.3]])
    assert epsilons(u, r) == pytest.approx([np.log((1 - DELTA - 0.25) / 0.25)])


def test_noise_is_set_by_the_retrained_side_alone():
    r = np.random.default_rng(3).normal(0, 1, (64, 3))
    widths = noise_widths(r)
    assert noise_widths(r * 10) == pytest.approx(widths * 10)
    assert (noise_widths(np.full((8, 1), 5.0)) > 0).all()


def test_a_selection_is_scored_like_the_models_in_it():
    rng = np.random.default_rng(4)
    u, r = rng.normal(50, 1, (16, 2)), rng.normal(0, 1, (16, 2))
    kept = np.zeros((1, 2, 16), bool)
    kept[0, 0, :8] = kept[0, 1, 8:] = True
    u[8:], r[:8] = 0.0, 50.0  # what is left out would make the sides overlap
    found = crossfit_epsilons(u, r, kept, delta=DELTA, cap=50.0, seed=0)
    assert found == pytest.approx(np.full((1, 2), np.log((1 - DELTA - 0.125) / 0.125)))


def test_equal_constants_are_not_told_apart():
    same = np.full((64, 3), 103.6)
    assert quality(same, same) > 0.8


@pytest.mark.parametrize("n_models", [32, 512])
def test_no_entry_of_the_battery_exceeds_the_original(n_models):
    found = {
        name: np.mean([quality(*drawn(entry, n_models, seed)) for seed in range(3)]) for name, entry in BATTERY.items()
    }
    above = {name: value for name, value in found.items() if value > found["the original"] + 0.05}
    assert not above


@pytest.mark.parametrize(
    ("family", "name"),
    [(AttackFamily.REFERENCE, "one run x 20"), (AttackFamily.DISENTANGLED, "runs that know their half x 1.5")],
)
def test_published_families_are_won_without_unlearning(family, name):
    given = Confidences.drawn(512, 40, seed=1)
    retrained, oracle = ModelOutputs(given.retrained()), ModelOutputs(given.retrained())
    best = score(oracle, retrained, attacks=family).headline
    assert score(ModelOutputs(BATTERY[name](given)), retrained, attacks=family).headline > 0.5 * best
    assert score(ModelOutputs(BATTERY[name](given)), retrained).headline < 0.05


@pytest.mark.parametrize(("n_models", "oracle"), [(32, 0.85), (128, 0.92), (512, 0.97)])
def test_honest_entries_are_ordered_by_their_distance(n_models, oracle):
    found = []
    for name in ("oracle", "shift of 0.5 sd", "shift of 1 sd", "shift of 2 sd"):
        given = Confidences.drawn(n_models, 100, seed=2)
        found.append(quality(HONEST[name](given), given.retrained()))
    assert found[0] > oracle
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("n_models", [32, 128])
def test_repeated_models_do_not_raise_a_score(n_models):
    twice, once = [], []
    for seed in range(5):
        given = Confidences.drawn(n_models, 60, seed=seed)
        r = given.retrained()
        once.append(quality(HONEST["oracle"](given), r))
        twice.append(quality(HONEST["oracle, half of the models twice"](given), r))
    assert np.mean(twice) < np.mean(once)
