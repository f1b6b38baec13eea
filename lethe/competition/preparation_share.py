"""What is told of a preparation: shards of models, the share of the work that is done, the report of a split."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from lethe.competition.file import CompetitionFile


class SharedBySets(BaseModel):
    """What two sets of a split have in common."""

    sets: tuple[str, str] = Field(examples=[("retain", "forget")])
    shared_images: int
    shared_persons: int
    exact_duplicates: int
    near_duplicates: int = Field(description="grey 8x8 thumbnails that correlate at 0.995 or more")
    examples: list[tuple[int, int, float]] = Field(description="the most similar: two image ids, their correlation")

    @property
    def overlaps(self) -> int:
        """How many images, persons and near-duplicates the sets share, together."""
        return self.shared_images + self.shared_persons + self.exact_duplicates + self.near_duplicates


class SplitReport(BaseModel):
    """What an organiser should look at before opening: sizes, counts of classes, overlaps. Keys are names of sets."""

    competition: str = Field(examples=["digits"])
    visibility: str = Field(examples=["public"])
    images: dict[str, int] = Field(examples=[{"retain": 700, "forget": 100, "validation": 180, "test": 719}])
    persons: dict[str, int]
    classes: dict[str, dict[str, int]] = Field(description="set -> class -> images")
    class_names: list[str] = Field(default=[], description="in the order of their labels; empty in older reports")
    confused_labels: int = Field(description="labels that were swapped on purpose")
    pairs: list[SharedBySets]


@dataclass(frozen=True)
class ShardToMake:
    """Models first_model .. first_model + n_models - 1 of a kind, kept in file number `position`."""

    kind: str
    position: int
    first_model: int
    n_models: int


# What comes before the many models: steps by name, as progress shows them, in order.
BEGINNING = {
    "versions": "loading libraries",
    "data": "drawing the sets",
    "true-labels": "storing true labels",
    "batch-size": "choosing a batch size",
    "plan": "measuring how fast models train",
    "sample": "making the public sample",
    "sample-answers": "answering the public sample",
    "original": "original model",
    "timing": "timing one retraining",
}
RETRAINED, ORACLE, ORIGINALS = "retrained models", "oracle", "original models"
VARIATION = "retraining, {label}"
# Of small competitions. Of large ones they are less: who estimates the time left goes by the speed of late.
BEGINNING_SHARE, END_SHARE = 0.1, 0.1


def preparation_share(file: CompetitionFile, *, stage: str, progress: float) -> float:
    """Return the share of all work on a split that is done, 0 to 1, about.

    stage: as the worker names it; "" before it began. progress: done of that stage, 0 to 1. Models count alike,
    whichever set they belong to; a stage that is none of them and not of the beginning is one of the end.
    """
    if not stage:
        return 0.0
    beginning = ["starting", "check", *BEGINNING.values()]
    if stage in beginning:
        return BEGINNING_SHARE * beginning.index(stage) / len(beginning)
    models = _models(file)
    if stage not in models:
        return 1.0 - END_SHARE / 2
    names = list(models)
    before = sum(models[name] for name in names[: names.index(stage)])
    return models_share((before + models[stage] * progress) / sum(models.values()))


def models_share(trained: float) -> float:
    """Return the share of all work when `trained` of the models, 0 to 1, are trained."""
    return BEGINNING_SHARE + (1.0 - BEGINNING_SHARE - END_SHARE) * trained


def _models(file: CompetitionFile) -> dict[str, int]:
    """Return how many models each stage trains, in the order of the stages."""
    models = {RETRAINED: file.n_models, ORACLE: file.n_models}
    if file.scoring.setup == "reuse-n-n":
        models[ORIGINALS] = file.n_models
    if recipes := file.splits.recipes:
        models |= {VARIATION.format(label=each.label): recipes.models for each in recipes.variations}
    return models


def training_recipe(competition: CompetitionFile) -> dict[str, Any]:
    """Return the parts of the competition file that a prepared split depends on."""
    parts = {"slug", "n_models", "dataset", "network", "training", "splits"}
    recipe: dict[str, Any] = competition.model_dump(mode="json", include=parts)
    if recipe["training"]["mixing"] == "none":
        del recipe["training"]["mixing"]  # splits that were made before there was a choice stay what they are
    del recipe["splits"]["opens_with"]
    del recipe["splits"]["recipes"]  # models of other recipes are added to a split; what it holds stays as it is
    if competition.task.kind != "image-classification":  # nor does the kind that all had
        recipe["task"] = competition.task.model_dump(mode="json")
    return recipe
