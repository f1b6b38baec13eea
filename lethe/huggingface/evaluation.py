"""Evaluation of one or several folders on one task, beside a retain model."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lethe.huggingface.attacks import AttackResult, AttackSettings, QuestionSets, attack_folders
from lethe.huggingface.errors import InvalidModelFolder, InvalidTaskData
from lethe.huggingface.model_folder import LanguageModel, load_language_model
from lethe.huggingface.reference import Reference, read_logs
from lethe.huggingface.results import NOT_FINITE, TaskResult
from lethe.huggingface.task import Evaluate, EvaluationTask, LoadSettings
from lethe.huggingface.versions import versions

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

    def mean(self) -> dict[str, float | None]:
        """Return each metric's value, the mean over folders where there are several; None where one lacks it."""
        counted = self.results[-1:] if self.is_series else self.results
        columns = {name: [result.metrics[name].value for result in counted] for name in counted[0].metrics}
        return {
            name: None if any(value is None for value in values) else float(np.mean(np.array(values, np.float64)))
            for name, values in columns.items()
        }

    def as_json(self) -> dict[str, Any]:
        first = self.results[0]
        retain = self.reference.metrics if self.reference else {}
        return {
            "format": FORMAT,
            "task": first.task,
            "metrics": self.mean(),
            "not_computed": {name: metric.reason for name, metric in first.metrics.items() if metric.value is None},
            "retain": {name: metric.value for name, metric in retain.items()},
            "original": self.original.values() if self.original else {},
            "models": [
                {"folder": folder, "metrics": result.values(), "notes": list(result.notes)}
                for folder, result in zip(self.folders, self.results, strict=True)
            ],
            "attacks": {name: found.as_json(self.folders) for name, found in self.attacks.items()},
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
) -> FolderEvaluation:
    """Return the metrics of every folder's model, one model in memory at a time beside the retain model.

    retain: a folder, evaluated first. retain_logs: its EVAL.json, in place of the folder. original: the folder of the
    model before unlearning. metrics: names of those that are kept, None for all. A model whose outputs are not finite
    has no values. Raises InvalidModelFolder or InvalidTaskData.
    """
    if retain is not None and retain_logs is not None:
        raise InvalidTaskData("give the retain model's folder or its logs, not both")
    if task.series and len(folders) > len(task.series):
        raise InvalidTaskData(f"{len(folders)} folders for {len(task.series)} forget sets; allowed is one for each")
    settings = settings or LoadSettings()
    if metrics is not None and task.metrics:
        _known(metrics, task.metrics)

    def load(folder: Path) -> LanguageModel:
        return load_language_model(folder, dtype=settings.dtype, device=settings.device, on_progress=on_progress)

    def evaluated(evaluate: Evaluate, folder: Path, reference: Reference | None) -> TaskResult:
        model = load(folder)
        found = evaluate(model, reference)
        found = found.without_values() if model.not_finite else found
        return found if metrics is None else found.only(_known(metrics, found.metrics))

    reference = read_logs(retain_logs) if retain_logs is not None else None
    if retain is not None:
        model = load(retain)
        of_retain = task.evaluate(model, None).metrics
        if model.not_finite:
            raise InvalidModelFolder(f"{retain} cannot be what others are compared with: {NOT_FINITE}")
        reference = Reference(
            of_retain, replace(model, on_progress=lambda _: None)
        )  # what others read by it is not counted
    before = None if original is None else evaluated(task.evaluate, original, reference)
    each = task.series or (task.evaluate,) * len(folders)
    results = tuple(
        evaluated(evaluate, folder, reference) for evaluate, folder in zip(each[: len(folders)], folders, strict=True)
    )
    is_series = bool(task.series)
    return FolderEvaluation(
        tuple(map(str, folders)), results, reference, settings, original=before, is_series=is_series
    )


def _known(names: Collection[str], known: Collection[str]) -> Collection[str]:
    """Return the names. Raises InvalidTaskData for one that is no metric of the task."""
    if unknown := [name for name in names if name not in known]:
        raise InvalidTaskData(f"the task has no metric {unknown[0]!r}; allowed are {', '.join(sorted(known))}")
    return names


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
) -> dict[str, AttackResult]:
    """Return attacks by name. Raises InvalidTaskData for a task without questions, or an unknown attack."""
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
