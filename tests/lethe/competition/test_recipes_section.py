"""[splits.recipes]: variations of the recipe, and what their models cost."""

from typing import Any

import pytest
from pydantic import ValidationError

from lethe.competition.estimates import recipe_cost
from lethe.competition.file import CompetitionFile
from tests.lethe.conftest import competition


def asked(
    *variations: dict[str, Any], metrics: tuple[str, ...] = ("recipe_spread",), models: int = 8
) -> CompetitionFile:
    splits = {"recipes": {"models": models, "variations": variations}}
    return competition(splits=splits, report={"metrics": list(metrics)})


def refusal(*variations: dict[str, Any], **given: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        asked(*variations, **given)
    return str(caught.value)


def test_variation_changes_only_what_it_names() -> None:
    file = asked({"epochs": 3}, {"weight_decay": 5e-4, "augmentation": "flip"})
    assert file.splits.recipes is not None
    first, second = (each.applied(file.training) for each in file.splits.recipes.variations)
    assert first == file.training.model_copy(update={"epochs": 3})
    assert second == file.training.model_copy(update={"weight_decay": 5e-4, "augmentation": "flip"})
    assert [each.label for each in file.splits.recipes.variations] == [
        "epochs-3",
        "weight-decay-0.0005_augmentation-flip",
    ]


def test_variation_without_a_change_is_refused() -> None:
    assert "must change one of epochs" in refusal({})
    assert "is what [training] says already" in refusal({"epochs": competition().training.epochs})


def test_variation_twice_is_refused() -> None:
    assert "variations has epochs-3 twice" in refusal({"epochs": 3}, {"epochs": 3})


def test_unknown_setting_of_a_variation_is_refused() -> None:
    assert "learning_rate" in refusal({"learning_rate": 0.1})


def test_models_and_their_metric_come_together() -> None:
    assert 'add "recipe_spread" to report.metrics' in refusal({"epochs": 3}, metrics=())
    with pytest.raises(ValidationError, match=r"needs the models of \[splits.recipes\]"):
        competition(report={"metrics": ["recipe_spread"]})


def test_variation_that_does_not_fit_the_schedule_is_refused() -> None:
    training = competition().training.model_dump() | {"epochs": 9, "schedule": "step", "milestones": (5,)}
    splits = {"recipes": {"variations": [{"epochs": 3}]}}
    with pytest.raises(ValidationError, match="milestones must lie in"):
        competition(training=training, splits=splits, report={"metrics": ["recipe_spread"]})


def test_cost_counts_epochs_of_both_splits() -> None:
    file = asked({"epochs": 3}, {"weight_decay": 5e-4}, models=8)
    found = recipe_cost(file, retraining_s=2.0)
    assert (found.n_models, found.epochs) == (32, 2 * 8 * (3 + file.training.epochs))
    assert found.seconds == pytest.approx(2.0 * found.epochs / file.training.epochs)
    assert recipe_cost(file, retraining_s=0.0).seconds is None
    assert recipe_cost(competition(), retraining_s=2.0).n_models == 0
