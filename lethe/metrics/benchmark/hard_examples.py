"""Which forget examples are hard, and whether two methods find the same ones hard."""

import math
from itertools import combinations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Scope
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


HARDNESS = Metric(
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


class EpsilonCorrelationParameters(Parameters):
    """coefficient: Spearman's rho with ties averaged, Kendall's tau-b, or Pearson's r."""

    coefficient: Literal["spearman", "kendall", "pearson"] = "spearman"


def epsilon_correlation(epsilon: npt.ArrayLike, *, coefficient: str = "spearman") -> MetricResult:
    """Return the mean correlation of epsilon over pairs of methods, with every pair in `arrays`.

    epsilon: shape (n_methods, n_examples), nats, at least 2 methods on the same split and 3 examples.
    arrays: `correlation`, `p_value` and `top_decile_overlap`, shape (n_methods, n_methods). A method whose epsilon is
    the same everywhere has no correlation (NaN) and is left out of the mean.
    Source: Triantafillou et al. 2024, appendix A.9, figure 15 (scatter plots; the coefficient is a choice here).
    """
    values = np.asarray(epsilon, np.float64)
    n_methods, n_examples = values.shape
    if n_methods < 2 or n_examples < 3:
        raise InvalidMetricInput(
            f"a correlation needs at least 2 methods and 3 examples, not {n_methods} and {n_examples}"
        )
    matrices = {name: np.eye(n_methods) for name in ("correlation", "top_decile_overlap")}
    matrices["p_value"] = np.zeros((n_methods, n_methods))
    for a, b in combinations(range(n_methods), 2):
        both = slice(a, b + 1, b - a)
        rho, p = _correlation(values[a], values[b], coefficient)
        found = {"correlation": rho, "p_value": p, "top_decile_overlap": _overlap(*values[both])}
        for name, value in found.items():
            matrices[name][a, b] = matrices[name][b, a] = value
    pairs = {name: matrix[np.triu_indices(n_methods, 1)] for name, matrix in matrices.items()}
    known = pairs["correlation"][~np.isnan(pairs["correlation"])]
    return MetricResult(
        math.fsum(known) / known.size if known.size else math.nan,
        table={"mean_top_decile_overlap": float(pairs["top_decile_overlap"].mean())},
        arrays=matrices,
        notes=() if known.size == pairs["correlation"].size else ("pairs with a constant epsilon are left out",),
    )


def _correlation(a: Float64, b: Float64, coefficient: str) -> tuple[float, float]:
    if a.min() == a.max() or b.min() == b.max():
        return math.nan, math.nan
    from scipy import stats  # noqa: PLC0415  slow to import, needed here alone

    functions: dict[str, Any] = {"spearman": stats.spearmanr, "kendall": stats.kendalltau, "pearson": stats.pearsonr}
    found = functions[coefficient](a, b)
    return float(found.statistic), float(found.pvalue)


def _overlap(a: Float64, b: Float64) -> float:
    """Return the share of the hardest tenth that both have; ties at its edge share the places left."""
    places = math.ceil(a.size / 10)
    return float(_membership(a, places) @ _membership(b, places)) / places


def _membership(values: Float64, places: int) -> Float64:
    edge = np.sort(values)[-places]
    above = values > edge
    tied = values == edge
    return np.asarray(above + tied * ((places - above.sum()) / tied.sum()))


EPSILON_CORRELATION = Metric(
    title="Correlation of epsilon between methods",
    function=epsilon_correlation,
    needs={"epsilon": Need("epsilon")},
    unit="correlation",
    direction=Direction.NONE,
    defaults=EpsilonCorrelationParameters,
    bounds=(-1.0, 1.0),
    scope=Scope.COMPARISON,
    source="Triantafillou et al. 2024 (2406.09073), appendix A.9, figure 15",
    formula="Spearman's rho of epsilon_a and epsilon_b over examples; overlap of the hardest tenth, by chance 0.1",
    paper_and_code="The paper shows scatter plots and no coefficient.",
)
