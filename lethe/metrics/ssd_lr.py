"""The entropy attack of selective synaptic dampening, with logistic regression."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.entropy_attack import LOGISTIC_SHARE
from lethe.metrics.member_share import ShadowParameters
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.run_means import mean_share


def ssd_lr(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean share of forget examples that are called members, in [0, 1].

    unlearned, retrained: the share of every model, shape (n_models,) each, as `logistic_shares` returns it.
    per_run: of the unlearned. table: the mean of the retrained.
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Foster et al. 2024 (arXiv:2308.07707), program; Chundawat et al. 2023 (arXiv:2205.08096).
    """
    return mean_share(unlearned, retrained, name="shares of members")


METRIC = Metric(
    id="ssd_lr",
    title="Entropy attack, logistic regression",
    function=ssd_lr,
    needs={"unlearned": Need(LOGISTIC_SHARE), "retrained": Need(LOGISTIC_SHARE, Side.RETRAINED)},
    unit="share of the forget set",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=ShadowParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Foster et al. 2024 (2308.07707), program, metrics.py",
    formula="mean_x [LR(H(p(x))) = member], balanced class weights, trained on retain (1) and test (0) examples",
    paper_and_code="The program asks for multi_class='multinomial', which scikit-learn 1.8 no longer has; for two "
    "classes the default is used.",
)
