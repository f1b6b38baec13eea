"""The step of a split whose competition asks for retrained models under variations of the recipe."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from lethe.competition.file import Training
from lethe.competition.recipes_section import Recipes, Variation
from lethe.data.files import write_tensors
from lethe.evaluation.model_outputs import RECIPE_OUTPUTS
from lethe.metrics.distribution.recipe_spread import AUGMENTATIONS
from lethe.preparation.model_shards import ModelShards
from lethe.preparation.step_cache import Step

STAGE = "retraining by other recipes"


def recipe_step(
    recipes: Recipes,
    training: Training,
    split_dir: Path,
    *,
    make_shards: Callable[[Variation], ModelShards],
    inputs: tuple[str, ...],
) -> Step:
    """Return the step that trains and evaluates the models of every variation.

    Outputs lie in the working folder as soon as a file of models is evaluated, so that a step that was broken off goes
    on. Other variations, or another number of models, are another step.
    """

    def make() -> None:
        found = [make_shards(variation).all_outputs() for variation in recipes.variations]
        arrays = {
            "recipe_confidences": np.stack([outputs.confidences for outputs in found]),
            "recipe_test_accuracy": np.stack([outputs.test_accuracy for outputs in found]),
            "recipe_settings": np.array([_settings(each.applied(training)) for each in recipes.variations]),
        }
        write_tensors(split_dir / RECIPE_OUTPUTS, {name: torch.from_numpy(array) for name, array in arrays.items()})

    digest = hashlib.sha256(recipes.model_dump_json().encode()).hexdigest()[:12]
    return Step(f"recipes-{digest}", (RECIPE_OUTPUTS,), make, inputs=inputs, stage=STAGE, tells_progress=True)


def _settings(recipe: Training) -> list[float]:
    return [
        float(recipe.epochs),
        recipe.weight_decay,
        float(recipe.batch_size),
        float(AUGMENTATIONS.index(recipe.augmentation)),
    ]
