"""`[task]`: what a competition's models do. Each kind has its own keys, and its own metrics that fit.

Everything else that depends on the kind is found by its name: how a split is prepared (lethe.preparation.task_kinds),
what evaluates a model (lethe.evaluation.evaluators) and what a run's function gets (lethe.runtime.data_loaders).
"""

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lethe.competition.section import Section

TRAINING = {"optimizer": "adamw", "schedule": "cosine"}
UNUSED = ("milestones", "label_smoothing", "class_weights", "augmentation", "mixing")
PRECISIONS = ("float32", "bf16")
FORGET_BY = ("person", "random", "ids")


def require_text_settings(
    training: Section, *, forget_by: str, class_skew: Mapping[str, float], modes: Collection[str]
) -> None:
    """Raise ValueError naming the first setting that a task of kind "causal-lm" does not take.

    training: the section of this name. The others are splits.forget.by, splits.forget.class_skew and submissions.modes.
    """
    for name, wanted in TRAINING.items():
        if getattr(training, name) != wanted:
            raise ValueError(f'training.{name} of a "causal-lm" task is "{wanted}", was "{getattr(training, name)}"')
    for name in UNUSED:
        if getattr(training, name) != type(training).model_fields[name].default:
            raise ValueError(f'training.{name} is for images: leave it out of a "causal-lm" task')
    _require_one_of("training.precision", getattr(training, "precision", None), PRECISIONS)
    _require_one_of("splits.forget.by", forget_by, FORGET_BY)
    if class_skew:
        raise ValueError('splits.forget.class_skew is for images: leave it out of a "causal-lm" task')
    if "notebook" in modes:
        raise ValueError('a "causal-lm" task takes functions only: take "notebook" out of submissions.modes')


def _require_one_of(name: str, value: object, allowed: Collection[str]) -> None:
    if value not in allowed:
        named = ", ".join(f'"{each}"' for each in allowed)
        raise ValueError(f'{name} of a "causal-lm" task is one of {named}, was "{value}"')


Kind = Literal["image-classification", "causal-lm"]


class ImageClassification(Section):
    """Images of classes; the default."""

    example: ClassVar[str] = "image"  # what the sets hold, in texts for people

    kind: Literal["image-classification"] = "image-classification"


class CausalLm(Section):
    """Questions that a language model answers."""

    example: ClassVar[str] = "question"

    kind: Literal["causal-lm"] = "causal-lm"
    loss_on: Literal["answers", "all"] = Field(
        default="answers", description="tokens that training has a loss on; all: for a network without pretraining"
    )
    lora_rank: int | None = Field(
        default=None, ge=1, le=1024, description="train additions of this rank (LoRA), merged afterwards; default: all"
    )
    max_new_tokens: int = Field(default=64, ge=1, le=4096, description="of a generated answer")
    measured_retain: int = Field(
        default=60, ge=1, description="questions of the retain set whose answers the metrics of text read"
    )


Task = Annotated[ImageClassification | CausalLm, Field(discriminator="kind")]

PROBED_LEVEL = 4  # arrays that probes make of kept weights, after the score

# The capture levels that a competition of each kind can have.
LEVELS: dict[Kind, frozenset[int]] = {
    "image-classification": frozenset({0, 1, 2, 3, PROBED_LEVEL}),
    "causal-lm": frozenset({0, PROBED_LEVEL, 5}),
}
IMAGES_ONLY = frozenset({"relearn_epochs", "perturbed_accuracy"})  # arrays of level 4 that answers do not have
