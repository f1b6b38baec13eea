"""The four numbers by which Deep Unlearn tunes a method against one retrained model."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import shares
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Scope
from lethe.metrics.core.result import MetricResult
from lethe.metrics.membership.umia import distance_from_certainty

NAMES = ("retain", "forget", "validation", "discernibility")


def deepunlearn_objective(
    unlearned: npt.ArrayLike, retrained: npt.ArrayLike, attack_accuracy: npt.ArrayLike
) -> MetricResult:
    """Return the Euclidean norm of the four losses of one trial, each in [0, 1]; 0 is best.

    unlearned, retrained: retain, forget and validation accuracy of one model each, shape (3,), in [0, 1].
    attack_accuracy: of U-MIA, forget against validation examples, one number in [0, 1].
    table: the four losses by name, which a multi-objective search minimises together.
    A method tuned with it has seen a retrained model: call it reference-tuned.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.2; program, `unlearner_optuna`.
    """
    u = shares(unlearned, axes=("sets",), name="accuracies", side="unlearned")
    r = shares(retrained, axes=("sets",), name="accuracies", side="retrained")
    if u.shape != (3,) or r.shape != (3,):
        raise InvalidMetricInput(f"accuracies must be of retain, forget, validation: 3, not {u.size} and {r.size}")
    attack = shares(np.reshape(attack_accuracy, -1), axes=("models",), name="attack accuracy")
    if attack.size != 1:
        raise InvalidMetricInput(f"the attack accuracy must be one number, not {attack.size}")
    losses = np.append(np.abs(u - r) / 3, 1.0 - distance_from_certainty(attack))
    table = dict(zip(NAMES, losses.tolist(), strict=True))
    return MetricResult(float(np.linalg.norm(losses)), table=table)


METRIC = Metric(
    id="deepunlearn_objective",
    title="Tuning objective of Deep Unlearn",
    function=deepunlearn_objective,
    needs={},
    unit="Euclidean norm",
    direction=Direction.LOWER,
    ideal=0.0,
    scope=Scope.BENCHMARK,
    source="Cadet et al. 2024 (2410.01276), section 5.2",
    formula="|| (|dRA|/3, |dFA|/3, |dVA|/3, 1 - indiscernibility) ||",
)
