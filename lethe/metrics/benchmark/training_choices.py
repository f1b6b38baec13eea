"""What recipes, budgets and tuned constants change, which forget examples are hard, and what unlearning costs."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, real_array, shares
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling, Scope
from lethe.metrics.core.result import Cell, MetricResult
from lethe.metrics.forgetting.final_score import largest_epsilon
from lethe.metrics.membership.umia import distance_from_certainty


def hardness(epsilon: npt.ArrayLike, n_models: int) -> MetricResult:
    """Return, per example, the sum over methods of epsilon clipped at ceil(log(N - 1)); the value is its mean / K.

    epsilon: shape (n_methods, n_examples), nats, of methods on the same split. n_models: models on each side.
    per_example: the sums. arrays: `order`, the examples from hard to easy, and `per_method`, the sums / K.
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


RECIPES = ("none", "early stop", "cutmix", "early stop and cutmix")


def amenability(
    original: npt.ArrayLike, unlearned: npt.ArrayLike, retrained: npt.ArrayLike, *, recipes: Sequence[str] = RECIPES
) -> MetricResult:
    """Return the largest share of the first recipe's remaining gap that another recipe removes; 0: none helps.

    original, unlearned, retrained: targeted error by recipe, shape (n_recipes,) each, in [0, 1]; the first recipe is
    the plain one. The gap of a recipe is unlearned - retrained of the *same* recipe.
    table: by recipe, the gap, and the share (original - unlearned) / (original - retrained) that the method removed,
    None where original and retrained are equal.
    NaN if the plain recipe leaves no gap. Raises InvalidMetricInput for unequal sizes or fewer than 2 recipes.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 4.3 and figure 3; they give no formula for one number.
    """
    sides = {"original": original, "unlearned": unlearned, "retrained": retrained}
    errors = {side: shares(v, axes=("recipes",), name="targeted error", side=side) for side, v in sides.items()}
    sizes = {side: values.size for side, values in errors.items()}
    if len(recipes) < 2 or set(sizes.values()) != {len(recipes)}:
        raise InvalidMetricInput(
            f"each side needs one error per recipe, and 2 recipes: {len(recipes)} recipes, {sizes}"
        )
    gaps = errors["unlearned"] - errors["retrained"]
    planted = errors["original"] - errors["retrained"]
    removed: list[Cell] = [None if w == 0 else float(1.0 - gap / w) for gap, w in zip(gaps, planted, strict=True)]
    value = float(1.0 - gaps[1:].min() / gaps[0]) if gaps[0] > 0 else float("nan")
    return MetricResult(
        value,
        table={"recipe": list(recipes), "gap": gaps.tolist(), "removed": removed},
        notes=() if gaps[0] > 0 else ("the plain recipe leaves no gap to the retrained models",),
    )


AMENABILITY = Metric(
    title="Amenability of a training recipe",
    function=amenability,
    unit="share of the plain recipe's gap",
    direction=Direction.HIGHER,
    scope=Scope.BENCHMARK,
    source="Goel et al. 2022 (2201.06640), section 4.3",
    formula="1 - min_j (E_u,j - E_r,j) / (E_u,0 - E_r,0)",
    paper_and_code="The paper shows bars and no number; the share is Lethe's.",
)


class BudgetParameters(Parameters):
    """standard_errors: a step counts if the metric falls by more than so many."""

    standard_errors: float = Field(2.0, ge=0.0)


def budget_strength(values: npt.ArrayLike, *, standard_errors: float = 2.0) -> MetricResult:
    """Return the number of adjacent budgets between which a lower-is-better metric falls clearly, an integer >= 0.

    values: the metric, shape (n_seeds, n_budgets), at least 2 seeds, paired by seed; budgets ascending, such as EU-k
    or CF-k with k = 1, 10 %, 50 %, 100 % of the weight layers. For a metric where higher is better give its negative.
    table: mean and standard error (ddof 1) of every difference, and the number of steps that rise clearly.
    Raises InvalidMetricInput for fewer than 2 seeds or 2 budgets.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 4.2, speak of gradual improvement and give no formula; the
    count is Lethe's.
    """
    table = real_array(values, axes=("seeds", "budgets"), name="values")
    n_seeds, n_budgets = table.shape
    if n_seeds < 2 or n_budgets < 2:
        raise InvalidMetricInput(f"at least 2 seeds and 2 budgets are needed, not {n_seeds} and {n_budgets}")
    falls = -np.diff(table, axis=1)
    means, errors = falls.mean(axis=0), falls.std(axis=0, ddof=1) / np.sqrt(n_seeds)
    clear, reversed_steps = means > standard_errors * errors, means < -standard_errors * errors
    return MetricResult(
        float(clear.sum()),
        table={"falls": means.tolist(), "standard_errors": errors.tolist(), "clear_rises": int(reversed_steps.sum())},
    )


BUDGET_STRENGTH = Metric(
    title="Strength of a test over budgets",
    function=budget_strength,
    unit="steps",
    direction=Direction.HIGHER,
    defaults=BudgetParameters,
    scope=Scope.BENCHMARK,
    source="Goel et al. 2022 (2201.06640), section 4.2",
    formula="#{j : mean_s (v_sj - v_s,j+1) > 2 se}",
    paper_and_code="The paper has no formula for gradual improvement; the count of clear steps is Lethe's.",
)


NAMES = ("retain", "forget", "validation", "discernibility")


def deepunlearn_objective(
    unlearned: npt.ArrayLike, retrained: npt.ArrayLike, attack_accuracy: npt.ArrayLike
) -> MetricResult:
    """Return the Euclidean norm of the four losses of one trial, each in [0, 1]; 0 is best.

    unlearned, retrained: retain, forget and validation accuracy of one model each, shape (3,), in [0, 1].
    attack_accuracy: of U-MIA, forget against validation examples, one number in [0, 1].
    table: the four losses by name, which a multi-objective search minimises together.
    A method tuned with it has seen a retrained model: call it reference-tuned.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.2; program, `unlearner_optuna`.
    """
    u = shares(unlearned, axes=("sets",), name="accuracies", side="unlearned")
    r = shares(retrained, axes=("sets",), name="accuracies", side="retrained")
    if u.shape != (3,) or r.shape != (3,):
        raise InvalidMetricInput(f"accuracies must be of retain, forget, validation: 3, not {u.size} and {r.size}")
    attack = shares(np.reshape(attack_accuracy, -1), axes=("models",), name="attack accuracy")
    if attack.size != 1:
        raise InvalidMetricInput(f"the attack accuracy must be one number, not {attack.size}")
    losses = np.append(np.abs(u - r) / 3, 1.0 - distance_from_certainty(attack))
    table = dict(zip(NAMES, losses.tolist(), strict=True))
    return MetricResult(float(np.linalg.norm(losses)), table=table)


DEEPUNLEARN_OBJECTIVE = Metric(
    title="Tuning objective of Deep Unlearn",
    function=deepunlearn_objective,
    unit="Euclidean norm",
    ideal=0.0,
    scope=Scope.BENCHMARK,
    source="Cadet et al. 2024 (2410.01276), section 5.2",
    formula="|| (|dRA|/3, |dFA|/3, |dVA|/3, 1 - indiscernibility) ||",
)


def rte(wall_time_s: Float64, retraining_time_s: float) -> MetricResult:
    """Return the time of one retraining over the median time of a run, > 0; above 1 is faster than retraining.

    wall_time_s: of every run, shape (n_models,), seconds. retraining_time_s: one number, measured on the same kind of
    device. per_run: the ratio of every run.
    """
    return MetricResult(float(retraining_time_s / np.median(wall_time_s)), per_run=retraining_time_s / wall_time_s)


RTE = Metric(
    title="Run time efficiency (RTE)",
    function=rte,
    needs={"wall_time_s": Need("wall_time_s"), "retraining_time_s": Need("retraining_time_s", Side.SHARED)},
    unit="times",
    direction=Direction.HIGHER,
    resampling=Resampling.MODELS,
    bounds=(0.0, float("inf")),
    source="Cadet et al. 2024 (2410.01276), section 5.4",
    formula="t_retraining / median_i t_i",
)


def isolation_cost(n_shards: int, n_forgotten: int) -> MetricResult:
    """Return the expected number of shards to retrain, within [1, n_shards].

    n_shards: P >= 1, of equal size. n_forgotten: n >= 1 examples, each in a random shard.
    table: the same as a share of all shards, and the probability that every shard has to be retrained.
    Raises InvalidMetricInput for numbers below 1.
    Source: Goel et al. 2022 (arXiv:2201.06640), appendix A; Bourtoule et al. 2021 (arXiv:1912.03817).
    """
    if n_shards < 1 or n_forgotten < 1:
        raise InvalidMetricInput(f"shards and forgotten examples must be at least 1, not {n_shards} and {n_forgotten}")
    expected = n_shards if n_shards == 1 else -n_shards * np.expm1(n_forgotten * np.log1p(-1.0 / n_shards))
    table = {"share": float(expected / n_shards), "all_shards": float(occupied_shards(n_shards, n_forgotten)[-1])}
    return MetricResult(float(expected), table=table)


def occupied_shards(n_shards: int, n_forgotten: int) -> Float64:
    """Return the probability that exactly k shards hold a forgotten example, shape (n_shards + 1,), k = 0..n_shards.

    One example after another: it falls into an occupied shard or a new one. All terms are positive; the alternating
    sum of the formula loses all digits beyond some 30 shards.
    """
    occupied = np.arange(n_shards + 1) / n_shards
    probability = np.zeros(n_shards + 1)
    probability[0] = 1.0
    for _ in range(n_forgotten):
        stays = probability * occupied
        stays[1:] += probability[:-1] * (1.0 - occupied[:-1])
        probability = stays
    return probability


ISOLATION_COST = Metric(
    title="Expected cost of shard-wise retraining",
    function=isolation_cost,
    unit="shards",
    scope=Scope.BENCHMARK,
    source="Goel et al. 2022 (2201.06640), appendix A",
    formula="E[Y] = P (1 - (1 - 1/P)^n); p(n) = 1 - sum_{j=1..P} (-1)^(j+1) C(P,j) (P - j)^n / P^n",
)
