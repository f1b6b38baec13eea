"""New evaluations of a re-judging ended, and the board that they may change."""

from typing import Any

from sqlalchemy import select

from server.evaluations import evaluations
from server.models.evaluation import Evaluation, EvaluationState
from server.models.submission import Fault
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from tests.support.instance import Instance

BASE = "/api/v1/competitions/digits"


def finish(
    server: Instance,
    submission: str,
    score: float | None,
    *,
    fault: Fault = Fault.PARTICIPANT,
    details: dict[str, Any] | None = None,
) -> None:
    """End the new evaluation of one submission, with a score or a failure."""
    with server.database.write() as session:
        new = Evaluation.submission_id == submission, Evaluation.is_current.is_(False)
        evaluation = session.scalars(select(Evaluation).where(*new, Evaluation.state == "queued")).one()
        if score is None:
            evaluations.fail(session, evaluation, fault=fault, error_class="exception", error={})
            return
        evaluation.state = EvaluationState.SCORING.value
        session.flush()
        parts = {"forgetting_quality": score, "retain_ratio": 1.0, "test_ratio": 1.0}
        found = ScoreRecord(final_score=score, details=details or {}, **parts)
        assert scores.record(session, evaluation.id, found)


def board(server: Instance) -> list[tuple[str, float]]:
    return [(row["team"], row["score"]) for row in server.client.get(f"{BASE}/leaderboard").json()["rows"]]
