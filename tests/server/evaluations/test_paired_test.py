"""The paired comparison of two stored scores: it is the scorer's own."""

import numpy as np
import pytest

from lethe.metrics.scoring.resampling import SIGNIFICANCE, Replicates, ScoredEntry
from lethe.metrics.scoring.resampling import compare as scorers
from server.errors import Conflict
from server.evaluations import paired_test
from worker.evaluation.scoring_job import replicates_as_data


def replicates(level: float, *, draw: int = 0, seed: int = 0, size: int = 40, shift: float = 0.0) -> Replicates:
    rng = np.random.default_rng(draw)
    values = level + shift * rng.normal(size=size)
    return Replicates(forgetting_quality=values, headline=values, factor=1.1, seed=seed, n_models=16)


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [((0.3, 1), (0.1, 2), 1), ((0.1, 1), (0.3, 2), 2), ((0.2, 1), (0.2001, 2), 0), ((0.2, 1), (0.2, 1), 0)],
)
def test_the_comparison_is_the_scorers(first: tuple[float, int], second: tuple[float, int], winner: int) -> None:
    a, b = (replicates(level, draw=draw, shift=0.01) for level, draw in (first, second))
    expected = scorers(ScoredEntry(first[0], a), ScoredEntry(second[0], b))
    found = paired_test.compare(first[0], second[0], replicates=(replicates_as_data(a), replicates_as_data(b)))
    assert found.difference == expected.difference
    assert found.standard_error == expected.standard_error
    assert found.interval == expected.interval
    assert found.p_value == pytest.approx(expected.p_value, rel=1e-12)
    assert found.winner == winner


def test_the_level_is_the_scorers() -> None:
    assert paired_test.SIGNIFICANCE == SIGNIFICANCE


def test_scores_that_differ_without_any_spread_differ_for_sure() -> None:
    sides = replicates_as_data(replicates(0.3)), replicates_as_data(replicates(0.1))
    assert paired_test.compare(0.3, 0.1, replicates=sides).p_value == 0.0


@pytest.mark.parametrize("other", [{"seed": 1}, {"size": 41}])
def test_replicates_drawn_otherwise_are_refused(other: dict[str, int]) -> None:
    sides = replicates_as_data(replicates(0.3)), replicates_as_data(replicates(0.3, **other))
    with pytest.raises(Conflict, match="cannot be paired"):
        paired_test.compare(0.3, 0.3, replicates=sides)


def test_scores_without_replicates_are_refused() -> None:
    with pytest.raises(Conflict, match="no replicates"):
        paired_test.compare(0.3, 0.3, replicates=(None, replicates_as_data(replicates(0.3))))


def test_replicates_without_a_value_are_refused() -> None:
    broken = replicates(0.3)
    broken.headline[0] = np.nan
    with pytest.raises(Conflict, match="utility ratio"):
        paired_test.compare(0.3, 0.3, replicates=(replicates_as_data(broken), replicates_as_data(replicates(0.3))))
