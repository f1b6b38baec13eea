"""What the models of [splits.recipes] cost."""

from dataclasses import dataclass

from lethe.competition.file import CompetitionFile


@dataclass(frozen=True)
class RecipeCost:
    """n_models: on both splits. epochs: of all of them. seconds: of one process, about; None where not known."""

    n_models: int
    epochs: int
    seconds: float | None

    def __str__(self) -> str:
        about = "" if self.seconds is None else f", about {self.seconds:.3g} s of one process"
        return f"{self.n_models} on both splits, {self.epochs} epochs{about}"


def recipe_cost(file: CompetitionFile, *, retraining_s: float) -> RecipeCost:
    """Return what the models of other recipes cost. retraining_s: of one by the plain recipe; 0 if it is not known.

    An epoch is taken to cost the same whatever the batch size: smaller batches cost more.
    """
    recipes = file.splits.recipes
    if recipes is None:
        return RecipeCost(0, 0, None)
    epochs = 2 * recipes.models * sum(each.applied(file.training).epochs for each in recipes.variations)
    seconds = retraining_s * epochs / file.training.epochs if retraining_s else None
    return RecipeCost(2 * recipes.models * len(recipes.variations), epochs, seconds)
