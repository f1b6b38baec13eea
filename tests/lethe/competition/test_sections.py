"""Sections of the competition file: metrics of the report, variations of the recipe, several tasks."""

from typing import Any

import pytest
from pydantic import ValidationError

from lethe.competition.estimates import recipe_cost
from lethe.competition.file import CompetitionFile, RunRules, parse_competition
from lethe.errors import InvalidCompetitionFile
from tests.lethe.conftest import competition
from tests.support.tasks import IMAGES, TEXT


def refusal(**report: object) -> str:
    with pytest.raises(ValidationError) as caught:
        competition(report=report)
    return str(caught.value)


def test_levels_are_those_that_the_metrics_need() -> None:
    assert competition().report.capture_levels == ()
    assert competition(report={"metrics": ["retdev"]}).report.capture_levels == (1,)
    asked = competition(report={"metrics": ["targeted_error", {"id": "klom", "bins": 10}]})
    assert 3 in asked.report.capture_levels
    assert competition(report={"metrics": [{"id": "f", "attacks": "exact"}]}).report.capture_levels == ()
    assert asked.report.metrics[1].parameters == {"bins": 10}
    assert competition(report={"capture": 2}).report.capture_levels == (1, 2), "those below too"


FOUR = ["klom", "retdev", "umia", "accuracy_gap"]


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ({"metrics": ["klomm"]}, "klom"),
        ({"metrics": [{"id": "klom", "colour": 3}]}, "colour"),
        ({"metrics": ["hardness"]}, "several submissions"),
        ({"metrics": ["klom"], "columns": ["umia"]}, "columns: 'umia' is not among the metrics"),
        ({"metrics": ["klom", {"id": "klom", "bins": 10}], "columns": ["klom"]}, "several parameters"),
        ({"metrics": ["klom"], "columns": ["klom", "klom"]}, "columns names 'klom' twice"),
        ({"metrics": FOUR, "columns": FOUR}, "at most 3"),
        ({"metrics": ["score"]}, "needs no entry"),
        ({"keep_weights": 9}, "less than or equal to 8"),
        ({"keep_weights": -1}, "greater than or equal to 0"),
    ],
)
def test_report_that_cannot_be_is_refused(report, said):
    assert said in refusal(**report)


@pytest.mark.parametrize("name", ["relearn_time", "residual_knowledge", "weight_distance"])
def test_metric_that_needs_a_probe_needs_kept_weights(name: str) -> None:
    found = refusal(metrics=["klom", name])
    assert f"{name} needs weights of runs (level 4), and keep_weights is 0: set it to how many runs" in found
    report = competition(report={"metrics": ["klom", name], "keep_weights": 2}).report
    assert report.capture_levels == (), "evaluations store no more than before"
    assert RunRules.of(competition(report={"keep_weights": 8})).keep_weights == 8
    assert RunRules.of(competition()).keep_weights == 0


def asked(
    *variations: dict[str, Any], metrics: tuple[str, ...] = ("recipe_spread",), models: int = 8
) -> CompetitionFile:
    splits = {"recipes": {"models": models, "variations": variations}}
    return competition(splits=splits, report={"metrics": list(metrics)})


def refused(*variations: dict[str, Any], **given: Any) -> str:
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


def test_variation_that_cannot_be_is_refused() -> None:
    assert "must change one of epochs" in refused({})
    assert "is what [training] says already" in refused({"epochs": competition().training.epochs})
    assert "variations has epochs-3 twice" in refused({"epochs": 3}, {"epochs": 3})
    assert "learning_rate" in refused({"learning_rate": 0.1})
    assert 'add "recipe_spread" to report.metrics' in refused({"epochs": 3}, metrics=())
    assert "needs the models of [splits.recipes]" in refusal(metrics=["recipe_spread"])
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


HEAD = """
slug = "three"
title = "Three tasks"
opens_at = 2026-01-01T00:00:00Z
closes_at = 2026-02-01T00:00:00Z
n_models = 16
[limits]
memory_mib = 512
submissions_per_day = 3
[combine]
by = "harmonic-mean"
weights = { faces = 2 }
"""


def text(more: str = "", in_first: str = "", in_second: str = "") -> str:
    """Return a file with a task of images, of other N and limits, and one of text without a title."""
    first = IMAGES.format(name="faces", title="Faces").replace("title", "n_models = 32\ntitle")
    second = TEXT.replace('title = "Authors"\n', "")
    return f"{HEAD}{more}\n{first}[tasks.limits]\nwall_time_s = 60\n{in_first}\n{second}{in_second}"


def test_each_task_becomes_a_complete_competition_file() -> None:
    file = parse_competition(text())
    faces, authors = file.tasks
    assert [(task.slug, task.title, task.n_models) for task in file.tasks] == [
        ("three--faces", "Faces", 32),
        ("three--authors", "authors", 16),
    ]
    assert (faces.opens_at, faces.closes_at) == (file.opens_at, file.closes_at)
    assert (faces.limits.wall_time_s, faces.limits.memory_mib, faces.limits.submissions_per_day) == (60, 512, 3)
    assert authors.limits.memory_mib == 512
    assert authors.task.kind == "causal-lm"
    assert faces.splits.seed != authors.splits.seed
    assert file.combine.weights == {"faces": 2}
    assert file.evaluated == file.tasks
    assert CompetitionFile.model_validate(file.model_dump(mode="json")) == file, "as it was stored"


def test_what_the_competition_shares_is_given_to_stored_tasks_too() -> None:
    stored = parse_competition(text()).model_dump(mode="json")
    stored["closes_at"] = "2026-03-01T00:00:00Z"
    stored["limits"] |= {"submissions_per_day": 9, "memory_mib": 4096}
    changed = CompetitionFile.model_validate(stored)
    assert {task.closes_at for task in changed.tasks} == {changed.closes_at}
    assert [(task.limits.submissions_per_day, task.limits.memory_mib) for task in changed.tasks] == [(9, 512)] * 2


def test_a_file_without_tasks_is_one_task() -> None:
    stored = parse_competition(text()).tasks[0].model_dump(mode="json")
    file = CompetitionFile.model_validate({name: stored[name] for name in stored if name not in ("tasks", "combine")})
    assert file.tasks == ()
    assert file.evaluated == (file,)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"more": "", "in_first": "[tasks.board]\nmode = 'ladder'"}, r"tasks.0.board: belongs to the competition"),
        ({"in_first": "submissions_per_day = 9"}, r"tasks.0.limits.submissions_per_day: belongs to the competition"),
        ({"in_second": "[[tasks]]\nname = 'faces'"}, r"two are called 'faces'"),
        ({"in_second": "[[tasks]]\nname = 'a--b'"}, r"tasks.2.name: must be 1 to 32 .* \(was 'a--b'\)"),
        ({"in_second": "[[tasks]]\ntitle = 'x'"}, r"tasks.2.name: must be 1 to 32"),
        ({"in_second": "[tasks.scoring]\ndelta = 2.0"}, r"tasks.1.scoring.delta: must be less than 1"),
        ({"in_second": "[[tasks]]\nname = 'x'"}, r"tasks.2.dataset: is missing"),
    ],
)
def test_what_is_wrong_with_a_task_is_named(parts: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidCompetitionFile, match=said):
        parse_competition(text(**parts))


@pytest.mark.parametrize(
    ("combine", "said"),
    [
        ({"weights": {"birds": 1.0}}, "'birds' is no task; allowed are faces, authors"),
        ({"weights": {"faces": 0.0}}, "combine.weights.faces: must be greater than 0"),
        ({"by": "worst", "weights": {"faces": 2.0}}, "the worst task has no weight"),
    ],
)
def test_weights_that_cannot_be_are_refused(combine: dict[str, object], said: str) -> None:
    stored = parse_competition(text()).model_dump(mode="json")
    with pytest.raises(ValueError, match=said):
        CompetitionFile.model_validate(stored | {"combine": combine})


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (lambda file: file.replace("[[tasks]]", "[splits]\nmore = 1\n[[tasks]]", 1), "splits.more"),
        (lambda file: file.replace("learning_rate = 0.1", "learning_rate = -1"), "tasks.0.training.learning_rate"),
        (lambda file: file.replace("learning_rate = 0.01", "learning_rate = -1"), "tasks.1.training.learning_rate"),
        (lambda file: file.replace('name = "faces"', 'nmae = "faces"'), "tasks.0.name"),
    ],
)
def test_a_mistake_is_named_once_where_it_was_written(wrong, field: str) -> None:
    with pytest.raises(InvalidCompetitionFile) as caught:
        parse_competition(wrong(text()))
    assert [violation.field.startswith(field) for violation in caught.value.violations] == [True], caught.value
