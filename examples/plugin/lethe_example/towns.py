"""The task `towns`: how probable a model finds each `text` of towns.jsonl."""

from pathlib import Path

from lethe.huggingface.answer_scores import score_answers
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import encode_passage
from lethe.huggingface.results import MetricValue, TaskResult, over_examples
from lethe.huggingface.task import EvaluationTask, LoadSettings
from lethe.huggingface.task_catalogue import read_rows


def towns(folder: Path, settings: LoadSettings) -> EvaluationTask:
    """Return the task with its data."""
    rows = read_rows(folder / "towns.jsonl", {"text": str})

    def probability(model: LanguageModel) -> MetricValue:
        passages = [encode_passage(model, row["text"]) for row in rows]
        return over_examples(score_answers(model, passages).probability)

    def evaluate(model: LanguageModel, _: object) -> TaskResult:
        model.define("town_prob", lambda: probability(model))
        return TaskResult("towns", model.metrics())

    return EvaluationTask(evaluate, len(rows), metrics=("town_prob",))
