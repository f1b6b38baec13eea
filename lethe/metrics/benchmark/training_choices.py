"""What recipes of training, budgets and tuned constants change: amenability, strength, Deep Unlearn's objective."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.core.arrays import real_array, shares
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Parameters, Scope
from lethe.metrics.core.result import Cell, MetricResult
from lethe.metrics.membership.umia import distance_from_certainty

RECIPES = ("none", "early stop", "cutmix", "early stop and cutmix")


def amenability(
    original: npt.ArrayLike,
    unlearned: npt.ArrayLike,
    retrained: npt.ArrayLike,
    *,
    recipes: Sequence[str] = RECIPES,
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
        table={
            "falls": means.tolist(),
            "standard_errors": errors.tolist(),
            "clear_rises": int(reversed_steps.sum()),
        },
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
