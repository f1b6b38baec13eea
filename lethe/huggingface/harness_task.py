"""Tasks of EleutherAI's `lm_eval` from a folder: its own YAML files, and data files that these name.

The library (extra `harness`) loads the data, writes the prompts and computes the metrics; the model and its tokenizer
are the ones that all tasks here get. Nothing is downloaded. A task file may name Python functions (`!function`) and
other files (`include`), which run and are read as the user's own: only take a stranger's after reading it.
"""

import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.results import InvalidTaskData, MetricValue, TaskResult
from lethe.huggingface.task import EvaluationTask, LoadSettings

NAME = "lm_eval"
BATCH = 8
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE")  # read by the libraries as they load


def harness_task(folder: Path, _: LoadSettings) -> EvaluationTask:
    names = read_harness_tasks(folder)
    return EvaluationTask(lambda model, __: evaluate_harness_tasks(model, folder, names), 1)


def read_harness_tasks(folder: Path) -> list[str]:
    """Return the names of the tasks whose YAML files lie in the folder.

    Raises InvalidTaskData if there are none, or if `lm_eval` is not installed.
    """
    with _offline():
        names = list(_manager(folder).all_tasks)
    if not names:
        raise InvalidTaskData(f"{folder} holds no task of lm_eval: expected are YAML files with the key `task`")
    return sorted(names)


def evaluate_harness_tasks(model: LanguageModel, folder: Path, names: list[str]) -> TaskResult:
    """Return each metric of each task as TASK_METRIC, with a filter's name behind it where there is one.

    Data files' paths are relative to the folder. Raises InvalidTaskData for what `lm_eval` cannot read or run.
    """
    wanted = model.evaluated.wanted
    if wanted is not None:  # metrics' names are known afterwards
        names = [name for name in names if any(each.startswith(f"{name}_") for each in wanted)]
    if not names:
        raise InvalidTaskData(f"no task has a metric {', '.join(wanted or ())}; metrics are named TASK_METRIC")
    with _offline():
        manager = _manager(folder)
        from lm_eval import simple_evaluate  # noqa: PLC0415 - seconds that other tasks need not pay
        from lm_eval.models.huggingface import HFLM  # noqa: PLC0415

        try:
            with chdir(folder):
                read: Any = HFLM(pretrained=model.network, tokenizer=model.tokenizer, batch_size=BATCH)
                found = simple_evaluate(read, tasks=names, task_manager=manager, bootstrap_iters=0, log_samples=False)
        except Exception as error:  # a task file's templates are programs
            raise InvalidTaskData(f"lm_eval cannot run the tasks of {folder.name}: {error}") from error
    model.on_progress(1)
    return TaskResult(NAME, dict(sorted(_metrics(found["results"]).items())))


def _metrics(results: dict[str, dict[str, Any]]) -> dict[str, MetricValue]:
    found = {}
    for task, values in results.items():
        for key, value in values.items():
            metric, _, chosen = key.partition(",")
            if isinstance(value, int | float) and chosen and not metric.endswith("_stderr"):
                found["_".join([task, metric, *([chosen] if chosen != "none" else [])])] = MetricValue(float(value))
    return found


@contextmanager
def _offline() -> Iterator[None]:
    """Keep the libraries from asking a hub; what else runs in this process is as before afterwards."""
    before, was_offline = {name: os.environ.get(name) for name in OFFLINE}, constants.HF_HUB_OFFLINE
    os.environ.update(dict.fromkeys(OFFLINE, "1"))
    constants.HF_HUB_OFFLINE = True  # it is loaded already
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _manager(folder: Path) -> Any:
    try:
        from lm_eval.tasks import TaskManager  # noqa: PLC0415
    except ImportError as error:
        raise InvalidTaskData(
            f"this task needs the library lm_eval: install lethe-unlearning[harness] ({error})"
        ) from error
    return TaskManager(include_path=str(folder.absolute()), include_defaults=False)
