"""Normalised machine unlearning score: test accuracy and distance from a useless membership attack."""

import numpy as np
from pydantic import Field

from lethe.metrics.attacks.membership_features import LOSS_ATTACK, ShuffleSplits
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


class NomusParameters(ShuffleSplits):
    """weight: of the test accuracy; the rest is the weight of forgetting."""

    seed: int = Field(0, ge=0)
    weight: float = Field(0.5, ge=0.0, le=1.0)


def nomus(test_accuracy: Float64, attack_accuracy: Float64, *, weight: float = 0.5) -> MetricResult:
    """Return the mean over runs of weight * test accuracy + (1 - weight) * (1 - 2 |MIA - 1/2|), in [0, 1].

    test_accuracy, attack_accuracy: one per model, shape (n_models,) each; the attack tells forget from unseen losses.
    table: the mean distance |MIA - 1/2|.
    Source: Choi and Na 2023, NoMUS.
    """
    distance = np.abs(attack_accuracy - 0.5)
    per_run = weight * test_accuracy + (1.0 - weight) * (1.0 - 2.0 * distance)
    return MetricResult(float(per_run.mean()), per_run=per_run, table={"forgetting_score": float(distance.mean())})


METRIC = Metric(
    id="nomus",
    title="NoMUS",
    function=nomus,
    needs={"test_accuracy": Need("test_accuracy"), "attack_accuracy": Need(LOSS_ATTACK)},
    unit="[0, 1]",
    direction=Direction.HIGHER,
    defaults=NomusParameters,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Choi and Na 2023 (2311.02240), NoMUS",
    formula="mean_i ( TA_i + 1 - 2 |MIA_i - 1/2| ) / 2, MIA as mia_loss with seed 0",
    paper_and_code="The program prints |MIA - 1/2| as its forgetting score; it is in the table.",
)
