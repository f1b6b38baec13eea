"""SemEval-2025 task 4 of a model: continuations, losses of members and of others, MMLU, and the aggregate of them.

Source: the organisers' programs (evaluate_generations.py; run_mmlu.py, which is open-instruct's).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np

from lethe.huggingface.answer_scores import Floats, score_answers
from lethe.huggingface.answer_sets import area_under_curve
from lethe.huggingface.generated_text import GeneratedText, generate, generation_notes
from lethe.huggingface.harness_task import HEADER, LETTERS, correct_choices, question_text, require_choices
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded, encode_passage
from lethe.huggingface.results import InvalidTaskData, MetricValue, TaskResult, over_examples
from lethe.huggingface.task import EvaluationTask, LoadSettings
from lethe.huggingface.task_catalogue import SEMEVAL, Row, all_rows
from lethe.metrics.core.arrays import Float64

MAX_NEW_TOKENS = 256
MEMBERS, OTHERS = "mia_data/member", "mia_data/nonmember"
Data = dict[str, list[Row]]  # by the file's path; only forget and retain are always there
N_EXAMPLES, MAX_PROMPT_LENGTH = 5, 2048
NAMES = {"sc": "regurgitation", "qa": "knowledge"}
MIN_MMLU = 0.371  # three quarters of the original 7B model's; below it an entry was not ranked
READ_AS_MISSING = ("", "None", "NA", "nan")  # in the script's CSV files; they become the text "nan"
KINDS = ("sc", "qa")


def semeval_task(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_semeval(folder)
    texts = sum(len(data[path]) for path in ("forget", "retain", MEMBERS, OTHERS))
    n_read = texts + sum(len(row["choices"]) for row in data["mmlu"])
    return EvaluationTask(lambda model, __: evaluate_semeval(model, data), n_read)


def read_semeval(folder: Path) -> Data:
    """Return the task's files of a folder. Raises InvalidTaskData naming what is missing or wrong."""
    data = all_rows(SEMEVAL, folder)
    for path in ("mmlu", "mmlu_dev"):
        require_choices(path, data[path])
    if bool(data[MEMBERS]) != bool(data[OTHERS]):
        raise InvalidTaskData(f"{folder} holds one of mia_data/member and mia_data/nonmember; allowed are both or none")
    return data


def evaluate_semeval(model: LanguageModel, data: Data) -> TaskResult:
    """Return the aggregate with all that it is made of; the parts whose files are missing have no value."""
    sides = {"forget": data["forget"], "retain": data["retain"]}
    prompts = {side: [_prompt(model, row["input"]) for row in rows] for side, rows in sides.items()}
    losses = {"members": data[MEMBERS], "others": data[OTHERS]}

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
        for place, (task, kind) in enumerate(product(sorted({row["task"] for row in rows}), KINDS)):
            term = partial(lambda side, place: scores(side).terms[place], side, place)
            model.define(f"{side}_{task}_{NAMES[kind]}", partial(_value, term, "the task has no row of this kind"))
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


def _mmlu(model: LanguageModel, data: Data) -> MetricValue:
    if not data["mmlu"]:
        return MetricValue(None, reason="needs mmlu")
    examples = defaultdict(list)
    for row in data["mmlu_dev"]:
        examples[row["subject"]].append(f"{question_text(row)} {LETTERS[row['answer']]}\n\n")
    encoded = [_mmlu_choices(model, row, examples[row["subject"]][:N_EXAMPLES]) for row in data["mmlu"]]
    return over_examples(correct_choices(model, encoded, data["mmlu"]))


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


@dataclass(frozen=True)
class Continuation:
    """What a model wrote for one row. id: ends in `sc` or `qa` and one digit; other rows are not scored."""

    id: str
    task: str
    expected: str
    written: str


@dataclass(frozen=True)
class SemevalScores:
    """terms: two per task for the forget set (1 - score), then for the retain set; tasks in alphabetical order.

    membership_auc, membership_score: NaN, and aggregate: -1, where a part is missing.
    """

    terms: tuple[float, ...]
    task_aggregate: float
    membership_auc: float
    membership_score: float
    mmlu: float
    aggregate: float

    @property
    def is_mmlu_too_low(self) -> bool:
        return self.mmlu < MIN_MMLU


def semeval_scores(
    forget: Sequence[Continuation],
    retain: Sequence[Continuation],
    *,
    member_losses: Sequence[float] | Float64 | None,
    nonmember_losses: Sequence[float] | Float64 | None,
    mmlu: float | None,
) -> SemevalScores:
    """Return the mean of task aggregate, membership score 1 - 2 |AUC - 1/2| and MMLU accuracy.

    The task aggregate is the harmonic mean of the terms: ROUGE-L recall of continued sentences (`sc`) and the share of
    exact answers (`qa`). A task without rows of a kind gives NaN. Raises InvalidTaskData for a loss that is NaN.
    """
    terms = [1 - term for term in _terms(forget)] + _terms(retain)
    together = _harmonic_mean(terms)
    auc = _membership_auc(member_losses, nonmember_losses)
    score = 1 - 2 * abs(auc - 0.5)
    known = mmlu is not None and not math.isnan(auc)
    accuracy = math.nan if mmlu is None else mmlu
    aggregate = float(np.mean([together, score, accuracy])) if known else -1.0
    return SemevalScores(tuple(terms), together, auc, score, accuracy, aggregate)


def _terms(rows: Sequence[Continuation]) -> list[float]:
    """Return the mean of both kinds for every task."""
    scores: dict[tuple[str, str], list[float]] = {
        (task, kind): [] for task in sorted({row.task for row in rows}) for kind in KINDS
    }
    for row in rows:
        if row.id[-3:-1] in KINDS:
            scores[row.task, row.id[-3:-1]].append(_score(row))
    return [float(np.mean(values)) if values else math.nan for values in scores.values()]


def _score(row: Continuation) -> float:
    expected, written = ("nan" if text in READ_AS_MISSING else text for text in (row.expected, row.written))
    if row.id[-3:-1] == "sc":
        return GeneratedText(prompt="", truth=expected, text=written).rouge_l_recall
    return float(expected.strip().lower() == written.strip().lower())


def _harmonic_mean(terms: Sequence[float]) -> float:
    if not terms or any(math.isnan(term) for term in terms):
        return math.nan
    return 0.0 if min(terms) == 0 else len(terms) / sum(1 / term for term in terms)


def _membership_auc(members: Sequence[float] | Float64 | None, others: Sequence[float] | Float64 | None) -> float:
    if members is None or others is None:
        return math.nan
    sides = [np.asarray(losses, np.float64) for losses in (members, others)]
    if any(np.isnan(losses).any() for losses in sides):
        raise InvalidTaskData("a loss of the membership attack is NaN; allowed are numbers")
    return area_under_curve(*sides)
