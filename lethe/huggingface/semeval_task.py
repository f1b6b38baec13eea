"""SemEval-2025 task 4 of a model: continuations, losses of members and of others, MMLU, and the aggregate of them.

Source: the organisers' programs (evaluate_generations.py; run_mmlu.py, which is open-instruct's).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    prompts = {name: [_prompt(model, row["input"]) for row in rows] for name, rows in sides.items()}
    written = {name: _continuations(model, name, encoded) for name, encoded in prompts.items()}
    continuations = {
        name: [
            Continuation(row["id"], row["task"], row["output"], text)
            for row, text in zip(rows, written[name], strict=True)
        ]
        for name, rows in sides.items()
    }
    members, others = (
        _losses(model, name, rows) for name, rows in (("members", data.members), ("others", data.others))
    )
    mmlu = model.part("mmlu", lambda: {"mmlu": _mmlu(model, data)})["mmlu"]
    scores = semeval_scores(
        continuations["forget"],
        continuations["retain"],
        member_losses=members,
        nonmember_losses=others,
        mmlu=mmlu.value,
    )
    notes = generation_notes(model, [*prompts["forget"], *prompts["retain"]])
    if mmlu.value is not None and scores.is_mmlu_too_low:
        notes.append(f"MMLU is below {MIN_MMLU}: the organisers did not rank such an entry of the 7B model")
    return TaskResult("semeval", _metrics(scores, continuations, mmlu), tuple(notes))


def _metrics(
    scores: SemevalScores, continuations: Mapping[str, Sequence[Continuation]], mmlu: MetricValue
) -> dict[str, MetricValue]:
    names = [
        f"{side}_{task}_{NAMES[kind]}"
        for side, rows in continuations.items()
        for task in sorted({row.task for row in rows})
        for kind in KINDS
    ]
    terms = [_value(term, "the task has no row of this kind") for term in scores.terms]
    missing = "needs mia_data/member and mia_data/nonmember"
    aggregate = np.nan if scores.aggregate == -1 else scores.aggregate  # -1: a part is missing
    return {
        "aggregate": _value(aggregate, f"{missing}, mmlu and rows of both kinds in every task"),
        "task_aggregate": _value(scores.task_aggregate, "a task has no row of one kind"),
        "membership_score": _value(scores.membership_score, missing),
        "membership_auc": _value(scores.membership_auc, missing),
        "mmlu": mmlu,
        **dict(zip(names, terms, strict=True)),
    }


def _value(found: float, reason: str) -> MetricValue:
    return MetricValue(None, reason=reason) if np.isnan(found) else MetricValue(float(found))


def _prompt(model: LanguageModel, text: str) -> Encoded:
    ids = list(model.tokenizer(text)["input_ids"])
    return Encoded(ids, start=len(ids), prompt=ids)


def _continuations(model: LanguageModel, name: str, prompts: Sequence[Encoded]) -> list[str]:
    def written() -> dict[str, MetricValue]:
        texts = [text.text for text in generate(model, prompts, max_new_tokens=MAX_NEW_TOKENS)]
        return {name: MetricValue(None, {"generation": texts})}

    return list(map(str, model.part(name, written)[name].per_example["generation"]))


def _losses(model: LanguageModel, name: str, rows: Sequence[Row]) -> Floats | None:
    if not rows:
        return None

    def losses() -> dict[str, MetricValue]:
        passages = [encode_passage(model, row["document"], longest=10**9) for row in rows]
        return {name: MetricValue(None, {"loss": score_answers(model, passages).loss})}

    return np.asarray(model.part(name, losses)[name].per_example["loss"], np.float64)


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
