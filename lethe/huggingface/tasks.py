"""The tasks by name: Lethe's own, and those that installed packages name under the entry point `lethe.text_tasks`.

Each is a function of the folder of its data and of LoadSettings that returns an EvaluationTask; what no one asks for is
not imported.
"""

from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from lethe.errors import InvalidInput
from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.task import EvaluationTask, LoadSettings

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
