"""`[task]`, what a competition's models do, and `[[tasks]]` and `[combine]`, several tasks in one competition.

Each kind has its own keys, and its own metrics that fit. Everything else that depends on the kind is found by its name:
how a split is prepared (lethe.preparation.task_kinds), what evaluates a model (lethe.evaluation.evaluators) and what a
run's function gets (lethe.runtime.data_loaders).

Each of several tasks is evaluated as a competition of its own, with its own dataset, network, splits, limits of a run
and N. Dates, teams, quotas and the choice of finals belong to the competition. Before it is checked, a task is
completed to a competition file called `<competition>--<task>`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lethe.competition.section import Section, Weights
from lethe.errors import Violation

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


MAX_TASKS = 16
BETWEEN = "--"  # a competition's slug and its task's name
OF_TASK = re.compile(r"tasks\.(\d+)\.(.+)")
NAME = re.compile(r"[a-z0-9](?:-?[a-z0-9]){0,31}")

# What a task may say, and where it says nothing takes from the competition.
OF_A_TASK = (
    "task",
    "dataset",
    "network",
    "training",
    "splits",
    "n_models",
    "shard_runs",
    "scoring",
    "limits",
    "submissions",
    "workers",
    "report",
    "ranking",
)
TEXTS = ("title", "summary", "description")  # which it may say, and does not take
SHARED = ("opens_at", "closes_at", "weak_seed", "board", "participation", "phases", "late")  # which it always takes
SHARED_LIMITS = (
    "upload_mib",
    "submissions_per_day",
    "submissions_total",
    "final_selections",
    "team_size",
    "leak_bits_per_day",
)


class Combine(Section):
    """How the scores of several tasks become one (docs/organisers/tasks.md)."""

    by: Literal["mean", "rank-mean", "harmonic-mean", "worst"] = "mean"
    weights: Weights = Field(default={}, description="of tasks by name; 1 where none is given; not of the worst")
    missing: Literal["zero", "refuse"] = Field(
        default="zero", description="a task without a score: counts as 0, or the team has no combined score"
    )


def task_name(slug: str) -> str:
    """Return a task's name out of the slug of its file; "" for a competition's."""
    return slug.rpartition(BETWEEN)[2] if BETWEEN in slug else ""


def completed(data: Any) -> Any:
    """Return a competition file's values with each task completed. Values without tasks are returned unchanged.

    Where the competition says nothing of a section, it has its first task's: it is never evaluated itself. Values that
    were completed before stay, but for what the competition shares. Raises ValueError naming each wrong task.
    """
    if not isinstance(data, Mapping) or not data.get("tasks") or not isinstance(data["tasks"], list | tuple):
        return data
    data = dict(data)
    if "metric" in data:  # how the section was called until version 0.2
        data["scoring"] = data.pop("metric")
    if wrong := _wrong_tasks(data["tasks"]):
        raise ValueError("; ".join(wrong))
    data["tasks"] = [_completed_task(task, data) for task in data["tasks"]]
    first = data["tasks"][0]
    return {name: first[name] for name in OF_A_TASK if name in first} | data


def shared_values(competition: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a task takes from its competition in any case, as values of its file. own: the task's values."""
    values = {name: competition[name] for name in SHARED if name in competition}
    return values | {"limits": _limits(own.get("limits", {}), competition.get("limits", {}), is_new=False)}


def wrong_combination(slug: str, tasks: Sequence[str], combine: Combine) -> str:
    """Return what is wrong with a competition's tasks, by their slugs, and how they are combined; "" if nothing."""
    names = [task_name(each) for each in tasks]
    if foreign := [each for each in tasks if each.rpartition(BETWEEN)[0] != slug]:
        return f"tasks: {foreign[0]!r} must be called {slug + BETWEEN}<name>"
    if unknown := sorted(set(combine.weights) - set(names)):
        allowed = ", ".join(names) or "none, there are no [[tasks]]"
        return f"combine.weights: {unknown[0]!r} is no task; allowed are {allowed}"
    if combine.by == "worst" and combine.weights:
        return 'combine.weights: the worst task has no weight; take them out, or use by = "mean"'
    if wrong := [name for name, weight in combine.weights.items() if not weight > 0]:
        return f"combine.weights.{wrong[0]}: must be greater than 0"
    return ""


def said_once(violations: Sequence[Violation], data: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Return what is wrong with a file that was written like this, each mistake at the place where it was written.

    A task repeats what it takes from the competition, and the competition what it takes from its first task.
    """
    tasks = data.get("tasks")
    if not isinstance(tasks, list):
        return tuple(violations)
    kept = []
    for violation in violations:
        own = OF_TASK.fullmatch(violation.field)
        field = own[2] if own else violation.field
        section, writes = field.partition(".")[0], tasks[int(own[1])] if own else data
        is_copy = section in data if own else section in OF_A_TASK
        if section in writes or not is_copy:
            kept.append(violation)
    return tuple(kept)


def _wrong_tasks(tasks: Sequence[Any]) -> list[str]:
    """Return what is wrong with the tasks as they were written."""
    if len(tasks) > MAX_TASKS:
        return [f"tasks: at most {MAX_TASKS} are allowed, not {len(tasks)}"]
    names = [task.get("name", task_name(str(task.get("slug", "")))) for task in tasks if isinstance(task, Mapping)]
    wrong = [message for place, task in enumerate(tasks) for message in _wrong_task(task, f"tasks.{place}")]
    return wrong or [f"tasks: two are called {name!r}" for name in dict.fromkeys(names) if names.count(name) > 1]


def _wrong_task(task: Any, where: str) -> list[str]:
    if not isinstance(task, Mapping):
        return [f"{where}: must be a table"]
    if "slug" in task:  # completed before
        return []
    name = task.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        found = f" (was {name!r})" if name is not None else ""
        allowed = "must be 1 to 32 lower-case letters, digits and single hyphens, without a hyphen at an end"
        return [f"{where}.name: {allowed}{found}"]
    wrong = [
        f"{where}.{key}: belongs to the competition or is not known; a task has name, {', '.join(TEXTS + OF_A_TASK)}"
        for key in task
        if key not in ("name", *TEXTS, *OF_A_TASK)
    ]
    limits = task.get("limits", {})
    shared = [key for key in limits if key in SHARED_LIMITS] if isinstance(limits, Mapping) else []
    return wrong + [f"{where}.limits.{key}: belongs to the competition; it is the same for all tasks" for key in shared]


def _completed_task(task: Mapping[str, Any], competition: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(task)
    if "slug" not in found:
        name = found.pop("name")
        found["slug"] = f"{competition.get('slug', '')}{BETWEEN}{name}"
        found.setdefault("title", name)
        for section in OF_A_TASK:
            if section in competition:
                found.setdefault(section, competition[section])
    if "slug" not in task:
        found["limits"] = _limits(task.get("limits", {}), competition.get("limits", {}), is_new=True)
    return found | shared_values(competition, found)


def _limits(own: Any, shared: Any, *, is_new: bool) -> Any:
    """Return a task's limits: its own before the competition's, but those that all tasks share. Wrong types stay."""
    if not isinstance(own, Mapping) or not isinstance(shared, Mapping):
        return own
    merged = {**(shared if is_new else {}), **own}
    return merged | {name: shared[name] for name in SHARED_LIMITS if name in shared}
