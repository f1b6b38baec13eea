"""What a competition file of language models may not say, because it would change nothing or cannot be done."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lethe.competition.file import CompetitionFile

TRAINING = {"optimizer": "adamw", "schedule": "cosine"}
UNUSED = ("milestones", "label_smoothing", "class_weights", "augmentation", "mixing")
FORGET_BY = ("person", "random", "ids")


def require_text_settings(file: "CompetitionFile") -> None:
    """Raise ValueError naming the first setting that a task of kind "causal-lm" does not take."""
    training = file.training
    for name, wanted in TRAINING.items():
        if getattr(training, name) != wanted:
            raise ValueError(f'training.{name} of a "causal-lm" task is "{wanted}", was "{getattr(training, name)}"')
    for name in UNUSED:
        if getattr(training, name) != type(training).model_fields[name].default:
            raise ValueError(f'training.{name} is for images: leave it out of a "causal-lm" task')
    if training.precision == "tf32":
        raise ValueError('training.precision of a "causal-lm" task is "float32" or "bf16", was "tf32"')
    if file.splits.forget.by not in FORGET_BY:
        allowed = ", ".join(f'"{by}"' for by in FORGET_BY)
        raise ValueError(f'splits.forget.by of a "causal-lm" task is one of {allowed}, was "{file.splits.forget.by}"')
    if file.splits.forget.class_skew:
        raise ValueError('splits.forget.class_skew is for images: leave it out of a "causal-lm" task')
    if file.report.keep_weights:
        raise ValueError('report.keep_weights is for images, as probes are: leave it out of a "causal-lm" task')
    if "notebook" in file.submissions.modes:
        raise ValueError('a "causal-lm" task takes functions only: take "notebook" out of submissions.modes')
