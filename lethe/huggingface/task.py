"""What a task is to the evaluation: its data, and what it computes of a model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lethe.huggingface.attacks import QuestionSets
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import TaskResult

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
