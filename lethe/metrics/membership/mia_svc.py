"""The efficacy of unlearning under an attack with a support vector classifier, as SalUn reports it."""

import numpy.typing as npt

from lethe.metrics.attacks.svc_efficacy import EFFICACY, EfficacyParameters
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.core.run_means import mean_share


def mia_svc(unlearned: npt.ArrayLike, retrained: npt.ArrayLike | None = None) -> MetricResult:
    """Return the mean efficacy, 1 - share of forget examples that are called members, in [0, 1].

    unlearned, retrained: the efficacy of every model, shape (n_models,) each, as `efficacies` returns it.
    per_run: of the unlearned. table: the mean of the retrained.
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Fan et al. 2024 (arXiv:2310.12508), MIA-efficacy; Jia et al. 2023 (arXiv:2304.04934).
    """
    return mean_share(unlearned, retrained, name="efficacies")


METRIC = Metric(
    id="mia_svc",
    title="MIA efficacy, support vectors",
    function=mia_svc,
    needs={"unlearned": Need(EFFICACY), "retrained": Need(EFFICACY, Side.RETRAINED, optional=True)},
    unit="share of the forget set",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=EfficacyParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Fan et al. 2024 (2310.12508), program, evaluation/SVC_MIA.py",
    formula="1 - mean_x [SVC(feature(x)) = member], trained on retain (1) and test (0) examples",
    paper_and_code="The program's modified entropy exchanges p and 1 - p in the columns of all labels of the batch and "
    "takes log p for log(1 - p). `m_entropy` is that of Song and Mittal; the program's is `m_entropy_published`.",
)
