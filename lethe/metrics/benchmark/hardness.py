"""Which forget examples are hard for many methods."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.registry import Direction, Metric, Need, Scope
from lethe.metrics.core.result import MetricResult
from lethe.metrics.forgetting.epsilon_histogram import largest_epsilon


def hardness(epsilon: npt.ArrayLike, n_models: int) -> MetricResult:
    """Return, per example, the sum over methods of epsilon clipped at ceil(log(N - 1)); the value is its mean / K.

    epsilon: shape (n_methods, n_examples), nats, of methods on the same split. n_models: models on each side.
    per_example: the sums. arrays: `order`, the examples from hard to easy, and `per_method`, the sums / K.
    Source: Triantafillou et al. 2024, appendix A.9, figure 14.
    """
    values = np.asarray(epsilon, np.float64)
    clip = largest_epsilon(int(n_models))
    # sorted first: a sum must not depend on the order of the methods
    sums = np.sort(np.minimum(values, clip), axis=0).sum(axis=0)
    share = sums / values.shape[0]
    return MetricResult(
        float(share.mean()),
        per_example=sums,
        table={"largest": float(sums.max()), "largest_possible": clip * values.shape[0]},
        arrays={"order": np.argsort(-sums, kind="stable"), "per_method": share},
    )


METRIC = Metric(
    id="hardness",
    title="Hard examples",
    function=hardness,
    needs={"epsilon": Need("epsilon"), "n_models": Need("n_models", Side.SHARED)},
    unit="nats per method",
    direction=Direction.NONE,
    per_example=True,
    scope=Scope.COMPARISON,
    source="Triantafillou et al. 2024 (2406.09073), appendix A.9, figure 14",
    formula="hard_s = sum over methods of min( epsilon_k,s , ceil(log(N - 1)) )",
    paper_and_code=(
        "The paper clips without saying so (its maximum is roughly 6 for N = 1024, and log(1023) = 6.9). Examples at "
        "the cap count as the clip, not as 50: one deterministic entry would otherwise decide."
    ),
)
