"""MUSE (Shi et al. 2025): verbatim memorisation, knowledge and privacy leakage of passages that are to be forgotten.

Metrics, their names and settings are those of open-unlearning (configs/eval/muse.yaml).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from lethe.huggingface.answer_sets import (
    MEMBERSHIP,
    MEMORIZATION,
    ScoredAnswers,
    define_membership,
    define_memorization,
    rouge_metric,
    scored,
)
from lethe.huggingface.attacks import QuestionSets
from lethe.huggingface.generated_text import generate, generation_notes
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded, PromptFormat, encode_answer, encode_passage
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import InvalidTaskData, MetricValue, TaskResult
from lethe.huggingface.task import EvaluationTask, LoadSettings
from lethe.huggingface.task_catalogue import (
    MUSE,
    MUSE_SCALING,
    MUSE_SUCCESSIVE,
    REQUESTS,
    LanguageTask,
    Row,
    all_rows,
    find_files,
    question_pairs,
    read_rows,
    task_rows,
)

STOP = ("\n\n", "\nQuestion", "Question:")
VERBATIM_TOKENS, KNOWLEDGE_TOKENS = 128, 32
METRICS = (*MEMORIZATION, *MEMBERSHIP, "forget_verbmem_ROUGE", "forget_knowmem_ROUGE", "retain_knowmem_ROUGE")


def muse_task(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = all_rows(MUSE, folder)
    prompts = partial(PromptFormat.of, plain=True)
    once = sum(len(data[path]) for path in ("knowmem/forget_qa", "knowmem/retain_qa"))
    twice = sum(len(data[path]) for path in ("verbmem/forget", "privleak/forget", "privleak/holdout"))
    return EvaluationTask(
        lambda model, reference: evaluate_muse(model, data, prompts(model), reference=reference),
        once + 2 * twice,
        QuestionSets(question_pairs(data["knowmem/forget_qa"]), question_pairs(data["knowmem/retain_qa"]), prompts),
        metrics=METRICS,
    )


def evaluate_muse(
    model: LanguageModel, data: Mapping[str, list[Row]], prompts: PromptFormat, *, reference: Reference | None = None
) -> TaskResult:
    """Return MUSE's metrics of a model, from rows by the file's path. reference: a retain model, for the leakage."""
    verbatim = [encode_passage(model, row["gt"], prefix=row["prompt"]) for row in data["verbmem/forget"]]
    knowledge = {
        "forget": encode_questions(model, prompts, data["knowmem/forget_qa"], data["knowmem/forget_qa_icl"]),
        "retain": encode_questions(model, prompts, data["knowmem/retain_qa"], data["knowmem/retain_qa_icl"]),
    }

    def rouge(answers: Sequence[Encoded], tokens: int, stop: Sequence[str] = ()) -> MetricValue:
        return rouge_metric(generate(model, answers, max_new_tokens=tokens, stop=stop), recall=False)

    def passages(rows: Sequence[Row]) -> Callable[[], ScoredAnswers]:
        return cache(lambda: scored(model, [encode_passage(model, row["text"]) for row in rows]))

    define_memorization(model, cache(lambda: scored(model, verbatim)))
    model.define("forget_verbmem_ROUGE", lambda: rouge(verbatim, VERBATIM_TOKENS))
    for name, questions in knowledge.items():
        model.define(f"{name}_knowmem_ROUGE", partial(rouge, questions, KNOWLEDGE_TOKENS, STOP))
    define_membership(model, passages(data["privleak/forget"]), passages(data["privleak/holdout"]), reference)
    metrics = model.metrics()
    written = any(name.endswith("_ROUGE") for name in metrics)
    notes = generation_notes(model, [*verbatim, *knowledge["forget"]]) if written else ()
    return TaskResult("muse", dict(sorted(metrics.items())), tuple(notes))


def encode_questions(
    model: LanguageModel, prompts: PromptFormat, rows: Sequence[Row], examples: Sequence[Row]
) -> list[Encoded]:
    before = [(row["question"], row["answer"]) for row in examples]
    return [encode_answer(model, prompts, row["question"], row["answer"], examples=before) for row in rows]


def series_task(task: LanguageTask, folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_series(task, folder)

    def evaluate(model: LanguageModel, _: object, *, step: int) -> TaskResult:
        return evaluate_step(task.name, model, data, step=step)

    steps = tuple(partial(evaluate, step=step) for step in range(len(data.forget_sets) + 1))
    return EvaluationTask(steps[0], len(data.retain_questions) + sum(map(len, data.forget_sets)), series=steps[1:])


scaling_task = partial(series_task, MUSE_SCALING)
successive_task = partial(series_task, MUSE_SUCCESSIVE)


@dataclass(frozen=True)
class SeriesData:
    """Questions of the retain set, and the passages of each forget set or request, in their order."""

    retain_questions: list[Row]
    retain_examples: list[Row]
    forget_sets: list[list[Row]]


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
