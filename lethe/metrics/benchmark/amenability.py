"""How much of the planted confusion a method removes from models that were trained with different recipes."""

from collections.abc import Sequence

import numpy.typing as npt

from lethe.metrics.core.arrays import shares
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Scope
from lethe.metrics.core.result import Cell, MetricResult

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


METRIC = Metric(
    id="amenability",
    title="Amenability of a training recipe",
    function=amenability,
    needs={},
    unit="share of the plain recipe's gap",
    direction=Direction.HIGHER,
    scope=Scope.BENCHMARK,
    source="Goel et al. 2022 (2201.06640), section 4.3",
    formula="1 - min_j (E_u,j - E_r,j) / (E_u,0 - E_r,0)",
    paper_and_code="The paper shows bars and no number; the share is Lethe's.",
)
