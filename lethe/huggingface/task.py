"""What a task is to the evaluation: its data, what it computes of a model, and which tasks there are.

Tasks are Lethe's own, and those that installed packages name under the entry point `lethe.text_tasks`. Each is a
function of the folder of its data and of LoadSettings that returns an EvaluationTask; what no one asks for is not
imported.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from lethe.errors import InvalidInput
from lethe.huggingface.attacks import QuestionSets
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import InvalidTaskData, TaskResult

Evaluate = Callable[[LanguageModel, Reference | None], TaskResult]


@dataclass(frozen=True)
class LoadSettings:
    """How models are loaded and asked. system_prompt: None for the usual one of the model's kind.

    gibberish: the folder of a classifier of texts, whose first class is the clean one.
    """

    dtype: str = "auto"
    device: str = "cpu"
    system_prompt: str | None = None
    gibberish: Path | None = None


@dataclass(frozen=True)
class EvaluationTask:
    """A task with its data. n_sequences: read or written per model. questions: for attacks, None if it has none.

    name: as it is asked for. metrics: their names, empty where they are known only afterwards.
    series: the n-th folder has its own evaluation, and there must be as many folders; else all have `evaluate`.
    """

    evaluate: Evaluate
    n_sequences: int
    questions: QuestionSets | None = None
    series: tuple[Evaluate, ...] = ()
    metrics: tuple[str, ...] = ()
    name: str = ""


ENTRY_POINTS = "lethe.text_tasks"
OWN = {
    "tofu": "tofu:tofu_task",
    "muse": "muse:muse_task",
    "muse-scaling": "muse:scaling_task",
    "muse-successive": "muse:successive_task",
    "wmdp": "multiple_choice:multiple_choice_task",
    "semeval": "semeval_task:semeval_task",
    "rwku": "rwku:rwku_task",
    "lm_eval": "harness_task:harness_task",
}


def read_task(name: str, folder: Path, settings: LoadSettings) -> EvaluationTask:
    """Return a task with its data. Raises InvalidTaskData for an unknown name or data that are not the task's."""
    known = task_readers()
    if name not in known:
        raise InvalidTaskData(f"task {name!r} is not known; allowed are {', '.join(known)}")
    try:
        reader = known[name].load()
    except (ImportError, AttributeError) as error:
        raise InvalidTaskData(f"task {name!r} cannot be loaded from {known[name].value}: {error}") from error
    task = reader(folder, settings)
    if not isinstance(task, EvaluationTask):
        raise InvalidTaskData(f"{known[name].value} gives {type(task).__name__}; allowed is an EvaluationTask")
    return replace(task, name=name)


@cache
def task_readers() -> dict[str, EntryPoint]:
    """Return what reads each task, by name. Raises InvalidInput for a name given twice."""
    own = {name: EntryPoint(name, f"lethe.huggingface.{value}", ENTRY_POINTS) for name, value in OWN.items()}
    installed = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if twice := sorted(own.keys() & installed.keys()):
        raise InvalidInput(f"an installed package has a task {twice[0]!r}, which is the name of one of Lethe's")
    return own | installed
