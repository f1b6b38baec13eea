"""Tasks, and the evaluation of one or several folders on one of them, beside a retain model.

Tasks are Lethe's own, and those that installed packages name under the entry point `lethe.text_tasks`. Each is a
function of the folder of its data and of LoadSettings that returns an EvaluationTask; what no one asks for is not
imported.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np

import lethe
from lethe.errors import AppError, InvalidInput
from lethe.huggingface.attacks import AttackResult, AttackSettings, QuestionSets, attack_folders
from lethe.huggingface.model_folder import LanguageModel, base_and_adapter, load_language_model
from lethe.huggingface.reference import Reference, read_logs
from lethe.huggingface.results import (
    NOT_FINITE,
    InvalidModelFolder,
    InvalidTaskData,
    KeptResults,
    Metrics,
    ModelMetrics,
    TaskResult,
    fingerprint,
    require_known,
    versions,
)

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
    "wmdp": "harness_task:multiple_choice_task",
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


FORMAT = "lethe-language-model-evaluation-1"


@dataclass(frozen=True)
class FolderEvaluation:
    """Results of every folder in their order, of the retain model and of the original (None without one).

    is_series: the folders are steps, so that the last one stands for all and no mean is taken.
    """

    folders: tuple[str, ...]
    results: tuple[TaskResult, ...]
    reference: Reference | None
    settings: LoadSettings
    attacks: Mapping[str, AttackResult] = field(default_factory=dict)
    original: TaskResult | None = None
    is_series: bool = False

    @property
    def first(self) -> TaskResult:
        """The result of the first folder that could be evaluated."""
        return next((result for result in self.results if not result.error), self.results[0])

    @property
    def evaluated(self) -> tuple[Path, ...]:
        """The folders that could be evaluated."""
        pairs = zip(self.folders, self.results, strict=True)
        return tuple(Path(folder) for folder, result in pairs if not result.error)

    def mean(self) -> dict[str, float | None]:
        """Return each metric's value, the mean over folders where there are several; None where one lacks it."""
        counted = self.results[-1:] if self.is_series else self.results
        columns = {name: [result.values().get(name) for result in counted] for name in self.first.metrics}
        return {
            name: None if any(value is None for value in values) else float(np.mean(np.array(values, np.float64)))
            for name, values in columns.items()
        }

    def as_json(self, *, is_finished: bool = True) -> dict[str, Any]:
        first = self.first
        retain = self.reference.metrics if self.reference else {}
        return {
            "format": FORMAT,
            "is_finished": is_finished,
            "task": first.task,
            "metrics": self.mean(),
            "not_computed": {name: metric.reason for name, metric in first.metrics.items() if metric.value is None},
            "retain": {name: metric.value for name, metric in retain.items()},
            "original": self.original.values() if self.original else {},
            "models": [
                {"folder": folder, "metrics": result.values(), "notes": list(result.notes)}
                | ({"error": result.error} if result.error else {})
                for folder, result in zip(self.folders, self.results, strict=True)
            ],
            "attacks": {name: found.as_json(list(map(str, self.evaluated))) for name, found in self.attacks.items()},
            "settings": {name: value and str(value) for name, value in vars(self.settings).items()},
            "versions": versions(),
        }


def evaluate_folders(
    folders: Sequence[Path],
    task: EvaluationTask,
    *,
    settings: LoadSettings | None = None,
    retain: Path | None = None,
    retain_logs: Path | None = None,
    original: Path | None = None,
    metrics: Collection[str] | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
    kept: KeptResults | None = None,
    on_part: Callable[[FolderEvaluation], None] = lambda _: None,
) -> FolderEvaluation:
    """Return the metrics of every folder's model, one model in memory at a time beside the retain model.

    retain: a folder, evaluated first. retain_logs: its EVAL.json, in place of the folder. original: the folder of the
    model before unlearning. metrics: names of those that are computed with what they are made of, None for all. A model
    whose outputs are not finite has no values. kept: what is done is written there, and what is found there is not
    computed again. on_part: called with what is known so far, after every metric of a folder. Of several folders, one
    that cannot be evaluated has an `error` in place of metrics. Raises InvalidModelFolder or InvalidTaskData, as where
    no folder can.
    """
    if retain is not None and retain_logs is not None:
        raise InvalidTaskData("give the retain model's folder or its logs, not both")
    if task.series and len(folders) > len(task.series):
        raise InvalidTaskData(f"{len(folders)} folders for {len(task.series)} forget sets; allowed is one for each")
    settings = settings or LoadSettings()
    if metrics is not None and task.metrics:
        require_known(metrics, task.metrics)

    def load(folder: Path, on_progress: Callable[[int], None] = lambda _: None) -> LanguageModel:
        return load_language_model(folder, dtype=settings.dtype, device=settings.device, on_progress=on_progress)

    def begin(
        folder: Path, key: Mapping[str, Any], on_metric: Callable[[Metrics], None] = lambda _: None
    ) -> ModelMetrics:
        own = {**key, "folder": fingerprint(base_and_adapter(folder))} if kept else key
        return ModelMetrics(metrics, kept, own, on_progress, on_metric)

    def evaluated(evaluate: Evaluate, folder: Path, reference: Reference | None, begun: ModelMetrics) -> TaskResult:
        found = begun.result()
        if found is None:
            model = replace(load(folder, begun.count), evaluated=begun)
            found = evaluate(model, reference)
            found = found.without_values() if model.not_finite else found
            begun.keep(found)
        require_known(metrics or (), found.metrics)
        return found

    reference = read_logs(retain_logs) if retain_logs is not None else None
    if retain is not None:
        reference = _reference(retain, task, begin(retain, {"is": "retain"}), load)
    before = None
    if original is not None:
        before = evaluated(task.evaluate, original, reference, begin(original, {"step": 0}))
    each = task.series or (task.evaluate,) * len(folders)
    names, is_series = tuple(map(str, folders)), bool(task.series)
    results: list[TaskResult] = []
    errors: list[AppError] = []

    def so_far(current: Sequence[TaskResult] = ()) -> FolderEvaluation:
        known = (*results, *current)
        return FolderEvaluation(names[: len(known)], known, reference, settings, original=before, is_series=is_series)

    for number, (evaluate, folder) in enumerate(zip(each[: len(folders)], folders, strict=True), start=1):

        def on_metric(found: Metrics) -> None:
            values = {name: each for name, each in found.items() if each.value is not None}
            on_part(so_far([TaskResult(task.name, values)]))

        try:
            begun = begin(folder, {"step": number if is_series else 0}, on_metric)
            results.append(evaluated(evaluate, folder, reference, begun))
        except AppError as error:
            errors.append(error)
            results.append(TaskResult(task.name, {}, error=error.detail))
        on_part(so_far())
    if len(errors) == len(folders):
        raise errors[0]
    return so_far()


def _reference(
    retain: Path, task: EvaluationTask, begun: ModelMetrics, load: Callable[..., LanguageModel]
) -> Reference:
    """Return what a retain model gives. Its results are its own, so that they serve other folders too."""
    found = begun.result()
    if found is None:
        model = replace(load(retain, begun.count), evaluated=begun)
        found = task.evaluate(model, None)
        if model.not_finite:
            raise InvalidModelFolder(f"{retain} cannot be what others are compared with: {NOT_FINITE}")
        begun.keep(found)
        silent = replace(model, on_progress=lambda _: None)  # what others read by it is not counted
        return Reference(found.metrics, lambda: silent)
    return Reference(found.metrics, lambda: load(retain))


def keep_results(
    folder: Path, task: str, data: Path, settings: LoadSettings, *, retain: Path | None, retain_logs: Path | None
) -> KeptResults:
    """Return what keeps the results of an evaluation in a folder, for as long as data, settings and versions stay."""
    inputs = {
        "task": task,
        "data": fingerprint([data, settings.gibberish, retain_logs]),
        "settings": {name: value and str(value) for name, value in vars(settings).items()},
        "retain": fingerprint(base_and_adapter(retain) if retain else []),
        "versions": {"lethe": lethe.__version__, **versions()},
    }
    return KeptResults(folder, inputs)


def attack_all(
    names: Sequence[str],
    task: EvaluationTask,
    folders: Sequence[Path],
    *,
    settings: LoadSettings | None = None,
    attack_settings: AttackSettings | None = None,
    retain: Path | None = None,
    original: Path | None = None,
    on_model: Callable[[], None] = lambda: None,
    kept: KeptResults | None = None,
) -> dict[str, AttackResult]:
    """Return attacks by name. kept: as `evaluate_folders` takes it.

    Raises InvalidTaskData for a task without questions, or an unknown attack.
    """
    questions = require_questions(task)
    chosen = settings or LoadSettings()
    return {
        name: attack_folders(
            name,
            questions,
            lambda folder: load_language_model(folder, dtype=chosen.dtype, device=chosen.device),
            folders,
            retain=retain,
            original=original,
            settings=attack_settings,
            on_model=on_model,
            kept=kept,
        )
        for name in names
    }


def require_questions(task: EvaluationTask) -> QuestionSets:
    """Return the questions of a task that can be attacked. Raises InvalidTaskData for another one."""
    if task.questions is None:
        raise InvalidTaskData(
            "attacks need the questions of a forget and a retain set; allowed are tofu, muse and rwku"
        )
    return task.questions
