"""TOFU (Maini et al. 2024): questions about made-up authors, of whom some are to be forgotten.

Metrics and their names are those of open-unlearning (configs/eval/tofu.yaml).
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from lethe.huggingface import answer_scores
from lethe.huggingface.answer_scores import Floats
from lethe.huggingface.answer_sets import (
    MEMBERSHIP,
    MEMORIZATION,
    NO_REFERENCE,
    ScoredAnswers,
    define_membership,
    define_memorization,
    rouge_metric,
    scored,
    scored_groups,
)
from lethe.huggingface.attacks import QuestionSets
from lethe.huggingface.generated_text import clean_text, generate, generation_notes, n_gram_entropy, perplexity
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded, PromptFormat, encode_answer
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import InvalidTaskData, MetricValue, TaskResult, over_examples
from lethe.huggingface.task import EvaluationTask, LoadSettings
from lethe.huggingface.task_catalogue import TOFU, Row, all_rows, question_pairs

Data = dict[str, list[Row]]  # by the file's path; the last may be empty: no membership attacks then
FORGET, RETAIN, AUTHORS, FACTS, HOLDOUT = (file.path for file in TOFU.files)
MAX_NEW_TOKENS = 200
UTILITY_PARTS = tuple(
    f"{name}_{part}"
    for name, parts in {
        "retain": ("Q_A_Prob", "Q_A_ROUGE", "Truth_Ratio"),
        "ra": ("Q_A_Prob_normalised", "Q_A_ROUGE", "Truth_Ratio"),
        "wf": ("Q_A_Prob_normalised", "Q_A_ROUGE", "Truth_Ratio"),
    }.items()
    for part in parts
)
PARAPHRASED = ("Q_A_PARA_Prob", "Q_A_PERT_Prob", "Q_A_Prob", "Q_A_ROUGE")
CHOSEN = ("Q_A_PERT_Prob", "Q_A_Prob", "Q_A_Prob_normalised", "Q_A_ROUGE", "Truth_Ratio")
METRICS = (
    *MEMORIZATION, *MEMBERSHIP, "forget_fluency_entropy", "forget_fluency_perplexity", "forget_quality",
    "forget_truth_ratio", "forget_truth_ratio_prob_mean", "model_utility", "retain_Truth_Ratio",
    *(f"{name}_{part}" for name in ("forget", "retain") for part in PARAPHRASED),
    *(f"{name}_{part}" for name in ("ra", "wf") for part in CHOSEN),
)  # fmt: skip


def tofu_task(folder: Path, settings: LoadSettings) -> EvaluationTask:
    data = all_rows(TOFU, folder)
    prompts = partial(PromptFormat.of, system_prompt=settings.system_prompt)
    return EvaluationTask(
        lambda model, reference: evaluate_tofu(
            model, data, prompts(model), reference=reference, gibberish=settings.gibberish
        ),
        _n_sequences(data),
        QuestionSets(question_pairs(data[FORGET]), question_pairs(data[RETAIN]), prompts),
        metrics=(
            *(name for name in METRICS if data[HOLDOUT] or name not in MEMBERSHIP),
            *(("forget_Q_A_gibberish",) if settings.gibberish else ()),
        ),
    )


def _n_sequences(data: Data) -> int:
    """Return how many sequences an evaluation reads or writes, for its progress."""
    *sets, holdout = data.values()
    answers = sum(1 + len(_texts(row["perturbed_answer"])) for rows in sets for row in rows)
    answers += sum(len(_texts(row["paraphrased_answer"])) for rows in sets[:2] for row in rows)
    attacked = len(sets[0]) + len(holdout) if holdout else 0
    return answers + sum(map(len, sets)) + len(holdout) + attacked


def evaluate_tofu(
    model: LanguageModel,
    data: Data,
    prompts: PromptFormat,
    *,
    reference: Reference | None = None,
    gibberish: Path | None = None,
) -> TaskResult:
    """Return TOFU's metrics of a model. reference: a retain model, for forget quality and two of the attacks.

    gibberish: the folder of a classifier, for `forget_Q_A_gibberish`.
    """
    forget = _Set(model, prompts, data[FORGET])
    _define_answers("forget", forget, truth="paraphrased_answer")
    asked = [row["question"] for row in data[FORGET]]

    def texts() -> list[str]:
        return list(map(str, model.metric("forget_Q_A_ROUGE").per_example["generation"]))

    model.define("forget_fluency_entropy", lambda: over_examples(np.array([n_gram_entropy(text) for text in texts()])))
    model.define("forget_fluency_perplexity", lambda: perplexity(asked, texts, reference))
    if gibberish is not None:
        model.define("forget_Q_A_gibberish", lambda: clean_text(gibberish, texts(), device=str(model.device)))
    define_memorization(model, lambda: forget.scored("answer"))
    model.define("forget_quality", lambda: _forget_quality(model.metric("forget_truth_ratio"), reference))
    if data[HOLDOUT]:
        holdout = _Set(model, prompts, data[HOLDOUT])
        define_membership(model, lambda: forget.scored("answer"), lambda: holdout.scored("answer"), reference)
    for name, rows, truth in (
        ("retain", data[RETAIN], "paraphrased_answer"),
        ("ra", data[AUTHORS], "answer"),
        ("wf", data[FACTS], "answer"),
    ):
        _define_answers(name, _Set(model, prompts, rows), truth=truth)
    model.define("model_utility", lambda: _model_utility(model))
    metrics = model.metrics()
    answers = [answer for group in forget.encoded("answer") for answer in group]
    notes = generation_notes(model, answers) if any(name.endswith("_ROUGE") for name in metrics) else ()
    return TaskResult("tofu", dict(sorted(metrics.items())), tuple(notes))


def _model_utility(model: LanguageModel) -> MetricValue:
    parts = [model.metric(part).value for part in UTILITY_PARTS]
    return MetricValue(answer_scores.model_utility([part for part in parts if part is not None]))


class _Set:
    """The questions of one file, and the scores of their answers by the field that holds these."""

    def __init__(self, model: LanguageModel, prompts: PromptFormat, rows: Sequence[Row]) -> None:
        self.model = model
        self._prompts = prompts
        self._rows = rows
        self._scored: dict[str, ScoredAnswers] = {}

    def encoded(self, field: str) -> list[list[Encoded]]:
        return [
            [encode_answer(self.model, self._prompts, row["question"], answer) for answer in _texts(row[field])]
            for row in self._rows
        ]

    def scored(self, field: str) -> ScoredAnswers:
        if field not in self._scored:
            groups = self.encoded(field)
            sizes = sorted({len(group) for group in groups})
            if len(sizes) > 1:
                raise InvalidTaskData(f"questions have {sizes} texts as `{field}`; each must have the same number")
            single = sizes == [1]
            self._scored[field] = (
                scored(self.model, [group[0] for group in groups]) if single else scored_groups(self.model, groups)
            )
        return self._scored[field]


def _define_answers(name: str, questions: _Set, *, truth: str) -> None:
    """Define probabilities, ROUGE and truth ratio of one set. truth: the field of the right answer in the ratio."""
    model = questions.model

    def define(metric: str, field: str) -> None:
        model.define(f"{name}_{metric}", lambda: questions.scored(field).probability())

    def ratio(metric: str, aggregate: answer_scores.Aggregate) -> None:
        model.define(f"{name}_{metric}", lambda: _truth_ratio(model, name, right, aggregate=aggregate))

    define("Q_A_Prob", "answer")
    define("Q_A_PERT_Prob", "perturbed_answer")
    model.define(f"{name}_Q_A_ROUGE", lambda: _rouge(questions))
    if truth == "paraphrased_answer":
        define("Q_A_PARA_Prob", truth)
        right = "Q_A_PARA_Prob"
    else:
        model.define(f"{name}_Q_A_Prob_normalised", lambda: _normalised(model, name))
        right = "Q_A_Prob"
    if name == "forget":
        ratio("truth_ratio", "closer_to_1_better")
        ratio("truth_ratio_prob_mean", "prob_mean")
    else:
        ratio("Truth_Ratio", "true_better")


def _rouge(questions: _Set) -> MetricValue:
    asked = [group[0] for group in questions.encoded("answer")]
    return rouge_metric(generate(questions.model, asked, max_new_tokens=MAX_NEW_TOKENS), recall=True)


def _normalised(model: LanguageModel, name: str) -> MetricValue:
    right, wrong = (_column(model.metric(f"{name}_{each}"), "prob") for each in ("Q_A_Prob", "Q_A_PERT_Prob"))
    return over_examples(answer_scores.normalised_probability(right, wrong.reshape(len(right), -1)), name="prob")


def _truth_ratio(model: LanguageModel, name: str, right: str, *, aggregate: answer_scores.Aggregate) -> MetricValue:
    losses = (_column(model.metric(f"{name}_{each}"), "avg_loss") for each in (right, "Q_A_PERT_Prob"))
    ratios = answer_scores.truth_ratios(*losses, aggregate=aggregate)
    return MetricValue(answer_scores.aggregate_truth_ratios(ratios, aggregate=aggregate), {"score": ratios})


def _column(metric: MetricValue, name: str) -> Floats:
    return np.asarray(metric.per_example[name], np.float64)


def _forget_quality(ratios: MetricValue, reference: Reference | None) -> MetricValue:
    retain = reference.per_example("forget_truth_ratio", "score") if reference else None
    if retain is None:
        return MetricValue(None, reason=NO_REFERENCE)
    return MetricValue(answer_scores.forget_quality(np.asarray(ratios.per_example["score"]), retain))


def _texts(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
