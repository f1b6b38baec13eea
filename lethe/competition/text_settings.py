"""What a competition file of language models may not say, because it would change nothing or cannot be done."""

from collections.abc import Collection, Mapping

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
