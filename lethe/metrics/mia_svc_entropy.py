"""The entropy attack of Golatkar et al. with a support vector classifier."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.entropy_attack import SVC_SHARE
from lethe.metrics.member_share import ShadowParameters
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.run_means import mean_share


def mia_svc_entropy(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean share of forget examples that are called members, in [0, 1].

    unlearned, retrained: the share of every model, shape (n_models,) each, as `svc_shares` returns it.
    per_run: of the unlearned. table: the mean of the retrained.
    Compare with the retrained models: a share far below theirs singles the forget set out.
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Golatkar et al. 2020 (arXiv:2003.02960), program; used by Goel et al. 2022 (arXiv:2201.06640).
    """
    return mean_share(unlearned, retrained, name="shares of members")


METRIC = Metric(
    id="mia_svc_entropy",
    title="Entropy attack, support vectors",
    function=mia_svc_entropy,
    needs={"unlearned": Need(SVC_SHARE), "retrained": Need(SVC_SHARE, Side.RETRAINED)},
    unit="share of the forget set",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=ShadowParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Golatkar et al. 2020 (2003.02960), program",
    formula="mean_x [SVC(H(p(x))) = member], trained on the entropies of retain (1) and test (0) examples",
)
