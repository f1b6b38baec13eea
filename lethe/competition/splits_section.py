"""`[splits]` of a competition file: how the data is cut, and what is forgotten."""

import secrets
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from lethe.competition.recipes_section import Recipes
from lethe.competition.section import Section, Weights

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
        default=(),
        description="by class: what the public split forgets; confusion: two; backdoor: its target",
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
