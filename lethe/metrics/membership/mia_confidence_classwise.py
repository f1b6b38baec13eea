"""The membership attack with one threshold per class: forget examples against test examples of their classes."""

from lethe.metrics.attacks.classwise_attack import ClasswiseParameters, classwise_accuracies
from lethe.metrics.core.registry import Direction, Feature, Metric, Resampling, both_sides
from lethe.metrics.core.run_means import mean_of_runs

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
    function=mean_of_runs,
    needs=both_sides(CLASSWISE_ATTACK, retrained_optional=True),
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
