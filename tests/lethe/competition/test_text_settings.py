"""A competition of language models refuses what would change nothing, or cannot be done."""

from typing import Any

import pytest

from lethe.competition.file import Training
from lethe.competition.task import require_text_settings

RECIPE = {"epochs": 3, "learning_rate": 0.1, "optimizer": "adamw", "schedule": "cosine"}


def require(changes: dict[str, object]) -> None:
    of_training = {name: value for name, value in changes.items() if name in Training.model_fields}
    of_others: dict[str, Any] = {"forget_by": "person", "class_skew": {}, "modes": ["function"], **changes}
    others = {name: value for name, value in of_others.items() if name not in of_training}
    require_text_settings(Training.model_validate(RECIPE | of_training), **others)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer": "sgd"}, 'training.optimizer of a "causal-lm" task is "adamw", was "sgd"'),
        ({"schedule": "constant"}, 'training.schedule of a "causal-lm" task is "cosine"'),
        ({"label_smoothing": 0.1}, "training.label_smoothing is for images"),
        ({"augmentation": "flip"}, "training.augmentation is for images"),
        ({"precision": "tf32"}, 'training.precision of a "causal-lm" task is one of "float32", "bf16", was "tf32"'),
        ({"forget_by": "class"}, 'splits.forget.by of a "causal-lm" task is one of "person", "random", "ids"'),
        ({"class_skew": {"1": 2.0}}, "splits.forget.class_skew is for images"),
        ({"modes": ["notebook"]}, 'take "notebook" out of submissions.modes'),
    ],
)
def test_settings_of_images_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match="causal-lm") as refused:
        require(changes)
    assert said in str(refused.value)


def test_settings_of_texts_are_taken() -> None:
    require({"precision": "bf16", "forget_by": "ids"})
