"""MUSE's last two criteria: forget sets that grow (C5), and requests one after the other (C6).

The n-th folder is the model after the n-th forget set or request. Its utility is the knowledge of the retain set, as
the authors measure it (muse_bench, get_utility_scal_sust). How probable each set's passages still are is added here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from lethe.huggingface.answer_sets import rouge_metric, scored
from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.generated_text import generate
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.muse import KNOWLEDGE_TOKENS, STOP, encode_questions
from lethe.huggingface.prompts import PromptFormat, encode_passage
from lethe.huggingface.results import MetricValue, TaskResult
from lethe.huggingface.task import EvaluationTask, LoadSettings
from lethe.huggingface.task_catalogue import MUSE_SCALING, MUSE_SUCCESSIVE, REQUESTS, LanguageTask
from lethe.huggingface.task_data import Row, find_files, read_rows, task_rows


def scaling_task(folder: Path, _: LoadSettings) -> EvaluationTask:
    return _task(MUSE_SCALING, folder)


def successive_task(folder: Path, _: LoadSettings) -> EvaluationTask:
    return _task(MUSE_SUCCESSIVE, folder)


def _task(task: LanguageTask, folder: Path) -> EvaluationTask:
    data = read_series(task, folder)

    def evaluate(model: LanguageModel, _: object, *, step: int) -> TaskResult:
        return evaluate_step(task.name, model, data, step=step)

    steps = tuple(partial(evaluate, step=step) for step in range(len(data.forget_sets) + 1))
    return EvaluationTask(steps[0], data.n_sequences(), series=steps[1:])


@dataclass(frozen=True)
class SeriesData:
    """Questions of the retain set, and the passages of each forget set or request, in their order."""

    retain_questions: list[Row]
    retain_examples: list[Row]
    forget_sets: list[list[Row]]

    def n_sequences(self) -> int:
        return len(self.retain_questions) + sum(map(len, self.forget_sets))


def read_series(task: LanguageTask, folder: Path) -> SeriesData:
    """Return the data of a series: `forget_1`, `forget_2` and so on. Raises InvalidTaskData naming what is wrong."""
    file = next(each for each in task.files if each.path.endswith(REQUESTS))
    found = {_number(path): path for path in find_files(folder, task.patterns(file))}
    if sorted(found) != list(range(1, len(found) + 1)):
        raise InvalidTaskData(f"{folder}: the forget sets are numbered {sorted(found)}; allowed is 1, 2, 3 and so on")
    questions, examples = (task_rows(task, folder, path) for path in ("knowmem/retain_qa", "knowmem/retain_qa_icl"))
    return SeriesData(questions, examples, [read_rows(found[number], file.fields) for number in sorted(found)])


def evaluate_step(task: str, model: LanguageModel, data: SeriesData, *, step: int) -> TaskResult:
    """Return the metrics of the model after so many forget sets (from 1; 0: a model that all are compared with).

    `forget_prob`: of the set or request of this step. `earlier_forget_prob`: of those before it, None at the first.
    """
    prompts = PromptFormat.of(model, plain=True)
    questions = encode_questions(model, prompts, data.retain_questions, data.retain_examples)

    def rouge() -> MetricValue:
        return rouge_metric(generate(model, questions, max_new_tokens=KNOWLEDGE_TOKENS, stop=STOP), recall=False)

    def of_step() -> MetricValue:
        return model.metric(f"forget_{step}_prob") if step else MetricValue(None, reason="is the model of no step")

    model.define("retain_knowmem_ROUGE", rouge)
    for number, passages in enumerate(data.forget_sets, start=1):
        model.define(f"forget_{number}_prob", partial(_probability, model, passages))
    model.define("forget_prob", of_step)
    model.define(
        "earlier_forget_prob", lambda: _mean([model.metric(f"forget_{number}_prob") for number in range(1, step)])
    )
    return TaskResult(task, dict(sorted(model.metrics().items())))


def _probability(model: LanguageModel, passages: Sequence[Row]) -> MetricValue:
    return scored(model, [encode_passage(model, row["text"]) for row in passages]).probability()


def _mean(values: Sequence[MetricValue]) -> MetricValue:
    known = [value.value for value in values if value.value is not None]
    return MetricValue(float(np.mean(known))) if known else MetricValue(None, reason="there is no earlier set")


def _number(path: Path) -> int:
    found = re.search(r"_(\d+)$", path.stem)
    if found is None:
        raise InvalidTaskData(f"{path.name} has no number at its end; allowed are forget_1, forget_2 and so on")
    return int(found[1])
