"""`[splits]` of a competition file: how the data is cut, what is forgotten, and other recipes of retraining."""

import secrets
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from lethe.competition.section import Section, Weights

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


WEAKEST_SEED_BITS = 64
SEED_BITS = 127  # nobody tries them all, and every database takes the number as JSON
Fraction = Annotated[float, Field(gt=0, lt=1)]


class ForgetSet(Section):
    """How the forget set is drawn from the training set. `fraction` is of the training images."""

    by: Literal[
        "person", "random", "difficulty", "class", "ids", "interclass-confusion", "iid-confusion", "backdoor"
    ] = "person"
    fraction: Fraction = 0.02
    class_skew: Weights = Field(
        default={}, validate_default=True, description="class -> relative weight in the draw; 1 if not named"
    )
    classes: tuple[int, ...] = Field(
        default=(), description="by class: what the public split forgets; confusion: two; backdoor: its target"
    )
    private_classes: tuple[int, ...] = Field(default=(), description="by class: what the private split forgets")
    ids: tuple[int, ...] = Field(default=(), description="by ids: rows of the dataset that the public split forgets")
    private_ids: tuple[int, ...] = Field(default=(), description="by ids: rows that the private split forgets")

    @field_validator("classes", "private_classes", mode="before")
    @classmethod
    def _are_numbers(cls, value: Any) -> Any:
        for name in value if isinstance(value, list | tuple) else ():
            if isinstance(name, str) and not name.isdigit():
                listed = "`lethe competition validate` lists them with their names"
                raise ValueError(f"must be numbers of classes, from 0, had {name!r}; {listed}")
        return value


class Splits(Section):
    """How the data is cut. Public and private share validation and test, and no forget example (nor person)."""

    seed: int = Field(
        default_factory=lambda: secrets.randbits(SEED_BITS),
        ge=0,
        description="a secret: whoever guesses it can cut the private split of a public dataset; drawn if not given",
    )
    train_size: int | None = Field(default=None, ge=2, description="training images; default: 80 % of the dataset")
    validation_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1
    sample_images: int | None = Field(
        default=None,
        ge=16,
        description="images of the public sample, from the validation set; default: half of that, but 256 to 2048",
    )
    forget: ForgetSet = ForgetSet()
    opens_with: Literal["public", "both"] = Field(
        default="public",
        description="splits that are prepared before the opening; of a large private split, the data and the original "
        "model always are, and its other models follow while submissions run",
    )
    recipes: Recipes | None = Field(
        default=None, description="retrained models of other recipes too, for the metric recipe_spread"
    )

    @model_validator(mode="after")
    def _leaves_training_data(self) -> Self:
        if self.validation_fraction + self.test_fraction >= 1:
            raise ValueError("validation_fraction + test_fraction must be below 1, so that training data is left")
        return self
