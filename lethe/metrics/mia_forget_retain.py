"""How well a softmax attack tells forget from retain examples."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import per_model
from lethe.metrics.membership_features import FORGET_RETAIN_ATTACK, SoftmaxSplits
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult


def mean_attack_percent(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean accuracy of a softmax attack in percent; the retrained models' is the aim.

    unlearned, retrained: held-out accuracies in percent, one per model, shape (n_models,) each.
    Source: the MIAU paper, section 5.
    """
    u = per_model(unlearned, name="attack accuracies", side="unlearned")
    r = per_model(retrained, name="attack accuracies", side="retrained")
    return MetricResult(float(u.mean()), per_run=u, table={"retrained": float(r.mean())})


METRIC = Metric(
    id="mia_forget_retain",
    title="Softmax attack, forget against retain",
    function=mean_attack_percent,
    needs={"unlearned": Need(FORGET_RETAIN_ATTACK), "retrained": Need(FORGET_RETAIN_ATTACK, Side.RETRAINED)},
    unit="%",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=SoftmaxSplits,
    resampling=Resampling.RUNS,
    bounds=(0.0, 100.0),
    source="the MIAU paper, section 5, attack training protocol",
    formula=(
        "mean over runs of 100 x the held-out accuracy of a logistic regression on softmax vectors, sets cut to equal "
        "size, 80 % for training"
    ),
    paper_and_code=(
        "No code is public. The paper lists forget against retain twice and means test against retain by the second; "
        "it gives no hyper-parameters: L2 penalty with C = 1 here, solved exactly. One split per run, seeded by the "
        "run, the same for the unlearned, retrained and original model of the run. The order of the examples is part "
        "of the seed."
    ),
)
