"""[splits.recipes] of the competition file: variations of the recipe that a split has retrained models of, too."""

from typing import Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from lethe.competition.section import Section

Recipe = TypeVar("Recipe", bound=Section)
METRIC_ID = "recipe_spread"  # what reads these models


class Variation(Section):
    """What one variation changes in [training]; the rest stays."""

    epochs: int | None = Field(default=None, ge=1, le=10_000)
    batch_size: int | None = Field(default=None, ge=1)
    weight_decay: float | None = Field(default=None, ge=0)
    augmentation: Literal["none", "flip", "crop-flip"] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.changes:
            raise ValueError(f"must change one of {', '.join(type(self).model_fields)}")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """Return the settings that are given."""
        return self.model_dump(exclude_none=True)

    @property
    def label(self) -> str:
        """Return the changes as one word, such as "epochs-15"."""
        return "_".join(f"{name.replace('_', '-')}-{value}" for name, value in self.changes.items())

    def applied(self, training: Recipe) -> Recipe:
        """Return the recipe with these changes. Raises ValueError where they do not fit, or change nothing."""
        varied = type(training).model_validate(training.model_dump() | self.changes)
        if varied == training:
            raise ValueError(f"splits.recipes.variations: {self.label} is what [training] says already")
        return varied


class Recipes(Section):
    """Retrained models under variations of the recipe, made with the split; `recipe_spread` compares with them."""

    models: int = Field(
        default=64, ge=3, le=65_536, description="of each variation; n_models / models blocks give the interval"
    )
    variations: tuple[Variation, ...] = Field(
        min_length=1, max_length=16, description="such as { epochs = 15 } or { weight_decay = 5e-4, batch_size = 32 }"
    )

    @model_validator(mode="after")
    def _variations_differ(self) -> Self:
        labels = [variation.label for variation in self.variations]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(f"variations has {twice[0]} twice")
        return self
