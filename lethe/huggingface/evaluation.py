"""Evaluation of one or several folders on one task, beside a retain model."""

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lethe.huggingface.attacks import AttackResult, AttackSettings, QuestionSets, attack_folders
from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.model_folder import LanguageModel, load_language_model
from lethe.huggingface.multiple_choice import evaluate_multiple_choice, read_multiple_choice
from lethe.huggingface.muse import evaluate_muse, read_muse
from lethe.huggingface.prompts import PromptFormat
from lethe.huggingface.reference import Reference, read_logs
from lethe.huggingface.results import TaskResult
from lethe.huggingface.tofu import evaluate_tofu, read_tofu

FORMAT = "lethe-language-model-evaluation-1"
VERSIONS_OF = ("torch", "transformers", "tokenizers", "peft", "numpy", "scipy", "scikit-learn")
Evaluate = Callable[[LanguageModel, Reference | None], TaskResult]


@dataclass(frozen=True)
class Task:
    """A task with its data. n_sequences: read or written per model. questions: for attacks, None if it has none."""

    evaluate: Evaluate
    n_sequences: int
    questions: QuestionSets | None = None


@dataclass(frozen=True)
class Settings:
    """How models are loaded and asked. system_prompt: None for the usual one of the model's kind."""

    dtype: str = "auto"
    device: str = "cpu"
    system_prompt: str | None = None


@dataclass(frozen=True)
class Evaluation:
    """Results of every folder in their order, and of the retain model (None without one)."""

    folders: tuple[str, ...]
    results: tuple[TaskResult, ...]
    reference: Reference | None
    settings: Settings
    attacks: Mapping[str, AttackResult] = field(default_factory=dict)

    def mean(self) -> dict[str, float | None]:
        """Return each metric's value, the mean over folders where there are several; None where one lacks it."""
        columns = {name: [result.metrics[name].value for result in self.results] for name in self.results[0].metrics}
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
            "models": [
                {"folder": folder, "metrics": result.values(), "notes": list(result.notes)}
                for folder, result in zip(self.folders, self.results, strict=True)
            ],
            "attacks": {name: found.as_json(self.folders) for name, found in self.attacks.items()},
            "settings": vars(self.settings),
            "versions": versions(),
        }


def read_task(name: str, folder: Path, settings: Settings) -> Task:
    """Return a task with its data. Raises InvalidTaskData for an unknown name or data that are not the task's."""
    if name == "tofu":
        tofu = read_tofu(folder)

        def prompts(model: LanguageModel) -> PromptFormat:
            return PromptFormat.of(model, system_prompt=settings.system_prompt)

        forget, retain = ([(row["question"], row["answer"]) for row in rows] for rows in (tofu.forget, tofu.retain))
        return Task(
            lambda model, reference: evaluate_tofu(model, tofu, prompts(model), reference=reference),
            tofu.n_sequences(),
            QuestionSets(forget, retain, prompts),
        )
    if name == "muse":
        muse = read_muse(folder)
        return Task(
            lambda model, reference: evaluate_muse(
                model, muse, PromptFormat.of(model, plain=True), reference=reference
            ),
            muse.n_sequences(),
        )
    if name == "wmdp":
        rows = read_multiple_choice(folder)
        return Task(lambda model, _: evaluate_multiple_choice(model, rows), sum(len(row["choices"]) for row in rows))
    raise InvalidTaskData(f"task {name!r} is not known; allowed are tofu, muse, wmdp")


def evaluate_folders(
    folders: Sequence[Path],
    task: Task,
    *,
    settings: Settings | None = None,
    retain: Path | None = None,
    retain_logs: Path | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Return the metrics of every folder's model, one model in memory at a time beside the retain model.

    retain: a folder, evaluated first. retain_logs: its EVAL.json, in place of the folder. Raises InvalidModelFolder or
    InvalidTaskData.
    """
    if retain is not None and retain_logs is not None:
        raise InvalidTaskData("give the retain model's folder or its logs, not both")
    settings = settings or Settings()

    def load(folder: Path) -> LanguageModel:
        return load_language_model(folder, dtype=settings.dtype, device=settings.device, on_progress=on_progress)

    reference = read_logs(retain_logs) if retain_logs is not None else None
    if retain is not None:
        model = load(retain)
        reference = Reference(task.evaluate(model, None).metrics, model)
    results = tuple(task.evaluate(load(folder), reference) for folder in folders)
    return Evaluation(tuple(str(folder) for folder in folders), results, reference, settings)


def attack_all(
    names: Sequence[str],
    task: Task,
    folders: Sequence[Path],
    *,
    settings: Settings | None = None,
    attack_settings: AttackSettings | None = None,
    retain: Path | None = None,
    on_model: Callable[[], None] = lambda: None,
) -> dict[str, AttackResult]:
    """Return attacks by name. Raises InvalidTaskData for a task without questions, or an unknown attack."""
    if task.questions is None:
        raise InvalidTaskData("attacks need the questions of a forget and a retain set; allowed is the task tofu")
    chosen = settings or Settings()
    return {
        name: attack_folders(
            name,
            task.questions,
            lambda folder: load_language_model(folder, dtype=chosen.dtype, device=chosen.device),
            folders,
            retain=retain,
            settings=attack_settings,
            on_model=on_model,
        )
        for name in names
    }


def versions() -> dict[str, str]:
    """Return the versions of the libraries that a result depends on."""
    found = {}
    for name in VERSIONS_OF:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
