"""The Jensen-Shannon divergence of the predictions on the forget set from the retrained model's."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.activation_l2 import METRIC as ACTIVATION_L2
from lethe.metrics.activation_l2 import mean_over_examples, paired_probabilities
from lethe.metrics.epsilon.processors import in_threads
from lethe.metrics.jensen_shannon import jensen_shannon
from lethe.metrics.registry import Direction, Metric, Resampling
from lethe.metrics.result import MetricResult


def js_to_retrained(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean over runs and examples of the Jensen-Shannon divergence in base 2, in [0, 1]; 0 is ideal.

    unlearned, retrained: probabilities, shapes (n_models, n_examples, n_classes) each, run i paired with model i.
    Raises InvalidMetricInput for rows that are no probabilities, or other models, examples or classes.
    Source: Lin 1991 for the divergence; Chundawat et al. 2023 for comparing predictions by it.
    """
    p, q = paired_probabilities(unlearned, retrained)
    pairs = zip(*(map(np.ascontiguousarray, side) for side in (p, q)), strict=True)
    return mean_over_examples(np.stack(in_threads(lambda pair: jensen_shannon(*pair), pairs)))


METRIC = Metric(
    id="js_to_retrained",
    title="Jensen-Shannon divergence to retrained",
    function=js_to_retrained,
    needs=ACTIVATION_L2.needs,
    unit="base 2, [0, 1]",
    direction=Direction.LOWER,
    paired=True,
    per_example=True,
    ideal=0.0,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Lin 1991, IEEE Transactions on Information Theory 37(1); Chundawat et al. 2023 (2205.08096)",
    formula="mean_i mean_x JS_2( p_u,i(x), p_r,i(x) )",
)
