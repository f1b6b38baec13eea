"""What a failure on hidden data may tell its team: counted in bits, within a budget for each team and UTC day.

A submission sees the hidden data and chooses how it fails, so every distinguishable failure is a message out. The class
is always told, and how many runs were done is seen anyway; the rest (the exception's type, the line, the tensor's name)
is told only while it fits the day's budget. Organisers see everything, on the evaluation.
"""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from server.db import DAY, now, start_of_day
from server.evaluations import evaluation_repository
from server.models.evaluation import Disclosure, Evaluation
from server.models.submission import Submission

CLASSES = 32  # fewer classes of errors are a participant's fault
SHOWN_FIELDS = ("message", "run", "exception_type", "file", "line")

ErrorFields = dict[str, Any]


@dataclass(frozen=True)
class Price:
    """Bits that a failure tells: at least (its class, and the run it came in), and with all its details."""

    least: float
    whole: float


def estimate_price(*, detail_bits: float, n_runs: int) -> Price:
    """Return what a failure costs. detail_bits: of all that it says beyond its class; n_runs: of the evaluation."""
    least = math.log2(CLASSES) + math.log2(n_runs + 1)
    return Price(least=least, whole=least + max(0.0, detail_bits))


def disclose(session: Session, evaluation: Evaluation, submission: Submission, *, budget: float) -> ErrorFields | None:
    """Return what the team may read of an error, counted against the day's budget unless of the public sample."""
    error = evaluation.error
    if error is None:
        return None
    shown = {name: error[name] for name in SHOWN_FIELDS if name in error}
    if not error.get("on_hidden_data"):
        return shown
    price = estimate_price(detail_bits=float(error.get("detail_bits") or 0.0), n_runs=evaluation.n_runs)
    at = now()
    renews_at = start_of_day(at) + DAY
    evaluation_repository.lock_team(session, submission.team_id)
    left = budget - evaluation_repository.bits_told(
        session, submission.team_id, since=start_of_day(at), before=renews_at
    )
    named = any(error.get(name) for name in ("exception_type", "file", "line"))
    has_details = named or error.get("message") != error.get("class_message")
    whole = not has_details or price.whole <= left
    told = price.whole if whole else price.least
    session.add(Disclosure(submission_id=submission.id, evaluation_id=evaluation.id, bits=told, disclosed_at=at))
    session.flush()
    counted = {
        "bits": round(told, 1),
        "remaining_bits": round(max(0.0, left - told), 1),
        "renews_at": renews_at.isoformat(),
        "withheld": not whole,
    }
    return {**(shown if whole else _class_only(error, budget=budget, renews_at=renews_at)), **counted}


def count(session: Session, evaluation: Evaluation, bits: float) -> None:
    """Count what was shown of an evaluation that did not fail. It is shown whatever is left of the budget."""
    if bits:
        session.add(Disclosure(submission_id=evaluation.submission_id, evaluation_id=evaluation.id, bits=bits))


def _class_only(error: ErrorFields, *, budget: float, renews_at: datetime) -> ErrorFields:
    withheld = (
        f"Where it failed is not shown: details of failures on hidden data are counted, and what is left of this "
        f"team's {budget:g} bits a day is too little. The budget renews at {renews_at:%Y-%m-%d %H:%M} UTC."
    )
    if budget == 0:
        withheld = "Where it failed is not shown: this competition shows no details of failures on hidden data."
    return {"message": f"{error.get('class_message') or ''} {withheld}".strip()}
