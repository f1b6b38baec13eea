"""Several tasks in one competition file: what each takes from the competition, and what is refused."""

import pytest

from lethe.competition.file import CompetitionFile, parse_competition
from lethe.errors import InvalidCompetitionFile

TOML = """
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
weights = {{ faces = 2 }}
{more}
[[tasks]]
name = "faces"
title = "Faces"
n_models = 32
[tasks.dataset]
name = "digits"
[tasks.network]
name = "mlp"
[tasks.training]
epochs = 1
learning_rate = 0.1
[tasks.limits]
wall_time_s = 60
{in_first}
[[tasks]]
name = "authors"
[tasks.task]
kind = "causal-lm"
[tasks.dataset]
name = "names"
[tasks.network]
name = "tiny_gpt"
[tasks.training]
epochs = 1
learning_rate = 0.01
optimizer = "adamw"
schedule = "cosine"
{in_second}
"""


def text(more: str = "", in_first: str = "", in_second: str = "") -> str:
    return TOML.format(more=more, in_first=in_first, in_second=in_second)


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


def test_a_file_with_tasks_is_the_same_after_it_was_stored() -> None:
    file = parse_competition(text())
    assert CompetitionFile.model_validate(file.model_dump(mode="json")) == file


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
