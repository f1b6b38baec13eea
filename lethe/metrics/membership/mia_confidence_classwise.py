"""The membership attack with one threshold per class: forget examples against test examples of their classes."""

import numpy.typing as npt

from lethe.metrics.attacks.classwise_attack import ClasswiseParameters, classwise_accuracies
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.registry import Direction, Feature, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.core.run_means import mean_share


def mia_confidence_classwise(unlearned: npt.ArrayLike, retrained: npt.ArrayLike | None = None) -> MetricResult:
    """Return the mean accuracy of the attack over models, in [0, 1]; 0.5 is chance.

    unlearned, retrained: the attack's accuracy on every model, shape (n_models,) each, from
    `classwise_accuracies`.
    per_run: of the unlearned. table: the mean of the retrained.
    Compare with the retrained models.
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Goel et al. 2022 (arXiv:2201.06640), appendix B.3.2; Song and Mittal 2021 (arXiv:2003.10595).
    """
    return mean_share(unlearned, retrained, name="attack accuracies")


CLASSWISE_ATTACK = Feature(
    "classwise_accuracy",
    classwise_accuracies,
    ("forget_probabilities", "test_probabilities"),
    ("forget_labels", "test_labels"),
    ("feature", "repetitions", "exchanged", "seed"),
)

METRIC = Metric(
    id="mia_confidence_classwise",
    title="Class-wise membership attack",
    function=mia_confidence_classwise,
    needs={"unlearned": Need(CLASSWISE_ATTACK), "retrained": Need(CLASSWISE_ATTACK, Side.RETRAINED, optional=True)},
    unit="accuracy",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=ClasswiseParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Goel et al. 2022 (2201.06640), appendix B.3.2; Song and Mittal 2021 (2003.10595)",
    formula="(share of forget targets >= threshold of their class + share of test targets below it) / 2",
    paper_and_code="The program draws each subsample from the one before it, keeps the halves of the smaller set, "
    "and exchanges members and non-members for IID confusion; here every repetition draws from all examples.",
)
