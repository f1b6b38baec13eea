"""The aggregate of SemEval-2025 task 4 (LUME): one number for forgetting, membership and general knowledge.

Source: the organisers' last script (evaluate_generations.py, compute_metrics, as of December 2024).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.generated_text import GeneratedText
from lethe.huggingface.membership import area_under_curve
from lethe.metrics.core.arrays import Float64

MIN_MMLU = 0.371  # three quarters of the original 7B model's; below it an entry was not ranked
READ_AS_MISSING = ("", "None", "NA", "nan")  # in the script's CSV files; they become the text "nan"
KINDS = ("sc", "qa")


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
