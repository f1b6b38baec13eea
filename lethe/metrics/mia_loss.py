"""How well a loss attack tells forget from test examples."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import shares
from lethe.metrics.membership_features import LOSS_ATTACK, ShuffleSplits
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult


def mean_attack_accuracy(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean accuracy of a membership attack on the unlearned models; the retrained models' is the aim.

    unlearned, retrained: held-out accuracies of the attack, one per model, shape (n_models,) each, in [0, 1].
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Triantafillou et al. 2024, appendix A.11.
    """
    u = shares(unlearned, axes=("models",), name="attack accuracies", side="unlearned")
    r = shares(retrained, axes=("models",), name="attack accuracies", side="retrained")
    return MetricResult(float(u.mean()), per_run=u, table={"retrained": float(r.mean())})


METRIC = Metric(
    id="mia_loss",
    title="Loss attack",
    function=mean_attack_accuracy,
    needs={"unlearned": Need(LOSS_ATTACK), "retrained": Need(LOSS_ATTACK, Side.RETRAINED)},
    unit="accuracy",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=ShuffleSplits,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Triantafillou et al. 2024 (2406.09073), appendix A.11, figure 17",
    formula=(
        "mean over runs and splits of the held-out accuracy of a logistic regression that tells the cross-entropy of "
        "forget examples from that of test examples"
    ),
    paper_and_code=(
        "The paper states neither split nor regulariser. Here: the larger set cut to the smaller by a seeded draw, 10 "
        "stratified shuffle splits, 10 % held out, L2 penalty with C = 1, as the code of deepunlearn and MUFAC has it. "
        "Equal losses everywhere give 0.5."
    ),
)
