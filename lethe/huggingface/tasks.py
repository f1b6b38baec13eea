"""The tasks by name: reading a folder gives what evaluates a model."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from lethe.huggingface import harness_task
from lethe.huggingface.attacks import QuestionSets
from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.multiple_choice import evaluate_multiple_choice, read_multiple_choice
from lethe.huggingface.muse import evaluate_muse, read_muse
from lethe.huggingface.muse_series import evaluate_step, read_series
from lethe.huggingface.prompts import PromptFormat
from lethe.huggingface.results import TaskResult
from lethe.huggingface.rwku import QUESTION, evaluate_rwku, read_rwku
from lethe.huggingface.semeval_task import evaluate_semeval, read_semeval
from lethe.huggingface.task import EvaluationTask, LoadSettings
from lethe.huggingface.task_catalogue import TASKS
from lethe.huggingface.task_data import Row
from lethe.huggingface.tofu import evaluate_tofu, read_tofu


def read_task(name: str, folder: Path, settings: LoadSettings) -> EvaluationTask:
    """Return a task with its data. Raises InvalidTaskData for an unknown name or data that are not the task's."""
    if name not in READERS:
        raise InvalidTaskData(f"task {name!r} is not known; allowed are {', '.join(READERS)}")
    return READERS[name](folder, settings)


def _tofu(folder: Path, settings: LoadSettings) -> EvaluationTask:
    data = read_tofu(folder)

    def prompts(model: LanguageModel) -> PromptFormat:
        return PromptFormat.of(model, system_prompt=settings.system_prompt)

    return EvaluationTask(
        lambda model, reference: evaluate_tofu(
            model, data, prompts(model), reference=reference, gibberish=settings.gibberish
        ),
        data.n_sequences(),
        QuestionSets(_pairs(data.forget), _pairs(data.retain), prompts),
    )


def _muse(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_muse(folder)
    prompts = partial(PromptFormat.of, plain=True)
    return EvaluationTask(
        lambda model, reference: evaluate_muse(model, data, prompts(model), reference=reference),
        data.n_sequences(),
        QuestionSets(_pairs(data.forget_questions), _pairs(data.retain_questions), prompts),
    )


def _series(name: str, folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_series(TASKS[name], folder)

    def evaluate(model: LanguageModel, __: object, *, step: int) -> TaskResult:
        return evaluate_step(name, model, data, step=step)

    steps = tuple(partial(evaluate, step=step) for step in range(len(data.forget_sets) + 1))
    return EvaluationTask(steps[0], data.n_sequences(), series=steps[1:])


def _wmdp(folder: Path, _: LoadSettings) -> EvaluationTask:
    sets = read_multiple_choice(folder)
    n_choices = sum(len(row["choices"]) for each in sets for row in each.rows)
    return EvaluationTask(lambda model, __: evaluate_multiple_choice(model, sets), n_choices)


def _semeval(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_semeval(folder)
    return EvaluationTask(lambda model, __: evaluate_semeval(model, data), data.n_sequences())


def _rwku(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_rwku(folder)
    forget, retain = (
        [(QUESTION.format(row["query"]), row["answer"]) for row in data.rows[path]]
        for path in ("forget_level2", "neighbor_level2")
    )
    prompts = partial(PromptFormat.of, system_prompt="")
    return EvaluationTask(
        lambda model, __: evaluate_rwku(model, data), data.n_sequences(), QuestionSets(forget, retain, prompts)
    )


def _harness(folder: Path, _: LoadSettings) -> EvaluationTask:
    names = harness_task.read_harness_tasks(folder)
    return EvaluationTask(lambda model, __: harness_task.evaluate_harness_tasks(model, folder, names), 1)


def _pairs(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row["question"], row["answer"]) for row in rows]


READERS: dict[str, Callable[[Path, LoadSettings], EvaluationTask]] = {
    "tofu": _tofu,
    "muse": _muse,
    "muse-scaling": partial(_series, "muse-scaling"),
    "muse-successive": partial(_series, "muse-successive"),
    "wmdp": _wmdp,
    "semeval": _semeval,
    "rwku": _rwku,
    harness_task.NAME: _harness,
}
