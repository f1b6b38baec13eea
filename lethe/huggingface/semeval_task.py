"""SemEval-2025 task 4 of a model: continuations, losses of members and of others, MMLU, and the aggregate of them.

Source: the organisers' programs (evaluate_generations.py; run_mmlu.py, which is open-instruct's).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from lethe.huggingface.answer_scores import Floats, score_answers
from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.generated_text import generate, generation_notes
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.multiple_choice import HEADER, LETTERS, correct_choices, question_text, require_choices
from lethe.huggingface.prompts import Encoded, encode_passage
from lethe.huggingface.results import MetricValue, TaskResult, over_examples
from lethe.huggingface.semeval import KINDS, MIN_MMLU, Continuation, SemevalScores, semeval_scores
from lethe.huggingface.task import EvaluationTask, LoadSettings
from lethe.huggingface.task_catalogue import SEMEVAL
from lethe.huggingface.task_data import Row, task_rows

MAX_NEW_TOKENS = 256
N_EXAMPLES, MAX_PROMPT_LENGTH = 5, 2048
NAMES = {"sc": "regurgitation", "qa": "knowledge"}


def semeval_task(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_semeval(folder)
    return EvaluationTask(lambda model, __: evaluate_semeval(model, data), data.n_sequences())


@dataclass(frozen=True)
class SemevalData:
    """Rows of the files. members, others, mmlu, mmlu_examples: may be empty."""

    forget: list[Row]
    retain: list[Row]
    members: list[Row]
    others: list[Row]
    mmlu: list[Row]
    mmlu_examples: list[Row]

    def n_sequences(self) -> int:
        texts = (self.forget, self.retain, self.members, self.others)
        return sum(map(len, texts)) + sum(len(row["choices"]) for row in self.mmlu)


def read_semeval(folder: Path) -> SemevalData:
    """Return the task's files of a folder. Raises InvalidTaskData naming what is missing or wrong."""
    data = SemevalData(
        forget=task_rows(SEMEVAL, folder, "forget"),
        retain=task_rows(SEMEVAL, folder, "retain"),
        members=task_rows(SEMEVAL, folder, "mia_data/member"),
        others=task_rows(SEMEVAL, folder, "mia_data/nonmember"),
        mmlu=require_choices("mmlu", task_rows(SEMEVAL, folder, "mmlu")),
        mmlu_examples=require_choices("mmlu_dev", task_rows(SEMEVAL, folder, "mmlu_dev")),
    )
    if bool(data.members) != bool(data.others):
        raise InvalidTaskData(f"{folder} holds one of mia_data/member and mia_data/nonmember; allowed are both or none")
    return data


def evaluate_semeval(model: LanguageModel, data: SemevalData) -> TaskResult:
    """Return the aggregate with all that it is made of; the parts whose files are missing have no value."""
    sides = {"forget": data.forget, "retain": data.retain}
    prompts = {side: [_prompt(model, row["input"]) for row in rows] for side, rows in sides.items()}
    losses = {"members": data.members, "others": data.others}

    def answers(side: str) -> list[Continuation]:
        texts = model.metric(f"{side} texts").per_example["generation"]
        rows = zip(sides[side], texts, strict=True)
        return [Continuation(row["id"], row["task"], row["output"], str(text)) for row, text in rows]

    def loss(name: str) -> Floats | None:
        return np.asarray(model.metric(f"{name} losses").per_example["loss"], np.float64) if losses[name] else None

    @cache
    def scores(*parts: str) -> SemevalScores:
        return semeval_scores(
            answers("forget") if "forget" in parts else [],
            answers("retain") if "retain" in parts else [],
            member_losses=loss("members") if "losses" in parts else None,
            nonmember_losses=loss("others") if "losses" in parts else None,
            mmlu=model.metric("mmlu").value if "mmlu" in parts else None,
        )

    def aggregate() -> float:
        found = scores("forget", "retain", "losses", "mmlu").aggregate
        return np.nan if found == -1 else found  # -1: a part is missing

    missing = "needs mia_data/member and mia_data/nonmember"
    for side, rows in sides.items():
        model.define(f"{side} texts", partial(_written, model, prompts[side]), is_inner=True)
        for place, name in enumerate(_term_names(side, rows)):
            term = partial(lambda side, place: scores(side).terms[place], side, place)
            model.define(name, partial(_value, term, "the task has no row of this kind"))
    for name, documents in losses.items():
        model.define(f"{name} losses", partial(_losses, model, documents), is_inner=True)
    for name, give, reason in (
        ("membership_auc", lambda: scores("losses").membership_auc, missing),
        ("membership_score", lambda: scores("losses").membership_score, missing),
        ("task_aggregate", lambda: scores("forget", "retain").task_aggregate, "a task has no row of one kind"),
        ("aggregate", aggregate, f"{missing}, mmlu and rows of both kinds in every task"),
    ):
        model.define(name, partial(_value, give, reason))
    model.define("mmlu", lambda: _mmlu(model, data))
    metrics = model.metrics()
    written = metrics.keys() - {"mmlu", "membership_auc", "membership_score"}
    notes = generation_notes(model, [*prompts["forget"], *prompts["retain"]]) if written else []
    if "mmlu" in metrics and metrics["mmlu"].value is not None and scores("mmlu").is_mmlu_too_low:
        notes.append(f"MMLU is below {MIN_MMLU}: the organisers did not rank such an entry of the 7B model")
    return TaskResult("semeval", metrics, tuple(notes))


def _term_names(side: str, rows: Sequence[Row]) -> list[str]:
    return [f"{side}_{task}_{NAMES[kind]}" for task in sorted({row["task"] for row in rows}) for kind in KINDS]


def _value(compute: Callable[[], float], reason: str) -> MetricValue:
    found = compute()
    return MetricValue(None, reason=reason) if np.isnan(found) else MetricValue(float(found))


def _prompt(model: LanguageModel, text: str) -> Encoded:
    ids = list(model.tokenizer(text)["input_ids"])
    return Encoded(ids, start=len(ids), prompt=ids)


def _written(model: LanguageModel, prompts: Sequence[Encoded]) -> MetricValue:
    return MetricValue(
        None, {"generation": [each.text for each in generate(model, prompts, max_new_tokens=MAX_NEW_TOKENS)]}
    )


def _losses(model: LanguageModel, rows: Sequence[Row]) -> MetricValue:
    passages = [encode_passage(model, row["document"], longest=10**9) for row in rows]
    return MetricValue(None, {"loss": score_answers(model, passages).loss})


def _mmlu(model: LanguageModel, data: SemevalData) -> MetricValue:
    if not data.mmlu:
        return MetricValue(None, reason="needs mmlu")
    examples = defaultdict(list)
    for row in data.mmlu_examples:
        examples[row["subject"]].append(f"{question_text(row)} {LETTERS[row['answer']]}\n\n")
    encoded = [_mmlu_choices(model, row, examples[row["subject"]][:N_EXAMPLES]) for row in data.mmlu]
    return over_examples(correct_choices(model, encoded, data.mmlu))


def _mmlu_choices(model: LanguageModel, row: Row, examples: Sequence[str]) -> list[Encoded]:
    """Return the choices after as many examples as fit. A subject's name has a blank before it, as in the program."""
    header = HEADER.format(f" {row['subject'].replace('_', ' ')}")
    prompt = _plain(model, header + "".join(examples) + question_text(row))
    if len(prompt) > MAX_PROMPT_LENGTH and examples:
        return _mmlu_choices(model, row, examples[:-1])
    letters = [_plain(model, f" {letter}")[-1] for letter in LETTERS[: len(row["choices"])]]
    return [Encoded([*prompt, letter], start=len(prompt), prompt=prompt) for letter in letters]


def _plain(model: LanguageModel, text: str) -> list[int]:
    return list(model.tokenizer(text, add_special_tokens=False)["input_ids"])
