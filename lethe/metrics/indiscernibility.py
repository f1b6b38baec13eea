"""How close the membership attack of U-MIA is to chance."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.arrays import Float64, shares
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.umia import FORGET_TEST_ATTACK, AttackParameters


def indiscernibility(unlearned: npt.ArrayLike) -> MetricResult:
    """Return the mean of 1 - |accuracy - 0.5| / 0.5 over models, in [0, 1]; 1 where the attack is at chance.

    unlearned: the attack's accuracy on every model, shape (n_models,). per_run: the value of every model.
    An attack that is always wrong scores 0, as one that is always right. A value above that of the retrained models
    is no merit: they are at the value that exact unlearning has.
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.3.
    """
    values = distance_from_certainty(shares(unlearned, axes=("models",), name="attack accuracies", side="unlearned"))
    return MetricResult(float(values.mean()), per_run=values)


def distance_from_certainty(accuracy: npt.ArrayLike) -> Float64:
    """Return 1 - |accuracy - 0.5| / 0.5, same shape."""
    return np.asarray(1.0 - np.abs(np.asarray(accuracy, np.float64) - 0.5) / 0.5)


METRIC = Metric(
    id="indiscernibility",
    title="Indiscernibility",
    function=indiscernibility,
    needs={"unlearned": Need(FORGET_TEST_ATTACK)},
    unit="1 - |accuracy - 0.5| / 0.5",
    direction=Direction.HIGHER,
    defaults=AttackParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Cadet et al. 2024 (2410.01276), section 5.3",
    formula="mean_i 1 - |U-MIA_i - 1/2| / (1/2)",
)
