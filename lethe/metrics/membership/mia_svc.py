"""The efficacy of unlearning under an attack with a support vector classifier, as SalUn reports it."""

from lethe.metrics.attacks.svc_efficacy import EFFICACY, EfficacyParameters
from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.run_means import mean_of_runs

METRIC = Metric(
    id="mia_svc",
    title="MIA efficacy, support vectors",
    function=mean_of_runs,
    needs=both_sides(EFFICACY, retrained_optional=True),
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
