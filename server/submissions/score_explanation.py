"""Why a public score is what it is: what stands beside it and what to try next, and, where it is opened, its factors.

The context is made of numbers that everybody is shown: the score as its team sees it, the oracle's, the original
model's and those of the board's reference lines. It tells nothing beyond them, not even which factor costs most: that
would be another message about hidden data. The explanation says it, which organisers open and the leak budget counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.explanation import Explanation, ScoreParts, explain
from server.competitions.stored_file import stored_file
from server.disclosure import gate
from server.disclosure.gate import Breakdown, ShownNumber
from server.leaderboard import boards
from server.leaderboard.ranking import Row, RowKind
from server.models.competition import Competition, Split
from server.submissions import submission_repository
from server.submissions.views import SubmissionView

NEAR_ORACLE = 0.9  # of the oracle's score: the rest is small beside what N models tell apart
NEAR_ORIGINAL = 0.05  # of the way from the original model's score to the oracle's
ORACLE, ORIGINAL = "oracle", "original"


@dataclass(frozen=True)
class ScoreReference:
    """A score that stands beside another one. kind: oracle, baseline (the best one of the board), or original."""

    kind: str
    name: str
    score: ShownNumber


@dataclass(frozen=True)
class ScoreContext:
    """The references of a score, the best first, and one sentence: what to try next."""

    references: tuple[ScoreReference, ...]
    advice: str


def best_baseline(session: Session, competition: Competition) -> Row | None:
    """Return the best reference line of the public board; None where it has none yet."""
    board = boards.board_for(session, competition, Visibility.PUBLIC, organiser=False)
    return next((row for row in board.rows if row.entry.kind is RowKind.BASELINE), None)


def find_context(session: Session, view: SubmissionView, split: Split | None) -> ScoreContext | None:
    """Return what stands beside the submission's public score; None where it has none."""
    if view.score is None:
        return None
    competition = view.submission.competition
    by_score = stored_file(competition).ranking.is_by_score
    scores = [
        (ORACLE, "Oracle", gate.get_oracle_score(split)),
        (ORIGINAL, "Original model", gate.get_original_score(split) if by_score else None),
    ]
    if row := best_baseline(session, competition):
        scores.append(("baseline", row.entry.team, row.entry.score))
    references = [ScoreReference(kind, name, score) for kind, name, score in scores if score is not None]
    references.sort(key=lambda reference: -reference.score)
    return ScoreContext(tuple(references), advice(view.score.final_score, references))


def advice(score: float, references: Sequence[ScoreReference]) -> str:
    """Return what to try next with a score, from where it stands among its references."""
    known = {reference.kind: reference for reference in references}
    oracle, baseline = known.get(ORACLE), known.get("baseline")
    original = known[ORIGINAL].score if ORIGINAL in known else 0.0
    if oracle and score >= NEAR_ORACLE * oracle.score:
        return "It is close to exact retraining: keep it, and send the same code again before you change more."
    if oracle and score <= original + NEAR_ORIGINAL * (oracle.score - original):
        return (
            "It is about what a model has that forgets nothing: move the weights further, by noise, a larger learning "
            "rate or more steps, then train on the retain set."
        )
    if baseline and score < baseline.score:
        return (
            f"The reference line {baseline.name} has {baseline.score - score:.5f} more: begin with its method, and "
            "change one constant at a time."
        )
    return (
        "What is left lies between it and exact retraining: change one constant at a time, and keep what raises the "
        "score of lethe check."
    )


def find_explanation(session: Session, view: SubmissionView, split: Split | None) -> Explanation | None:
    """Return what the submission's public score is made of; None where its factors are not shown."""
    own = view.score.breakdown if view.score else None
    if own is None:
        return None
    oracle = Breakdown.of_oracle(split.oracle if split else None)
    submission = view.submission
    attacks = stored_file(submission.competition).scoring.attacks
    others = {"the entry before": submission_repository.score_before(session, submission)}
    if row := best_baseline(session, submission.competition):
        others[row.entry.team] = submission_repository.like_score(session, submission, str(row.entry.submission_id))
    shown = {
        name: _parts(gate.score(stored, submission.competition).breakdown if stored else None, attacks)
        for name, stored in others.items()
    }
    parts = _parts(own, attacks)
    return explain(parts, oracle=_parts(oracle, attacks), others=shown) if parts else None


def _parts(breakdown: Breakdown | None, attacks: AttackFamily) -> ScoreParts | None:
    if breakdown is None:
        return None
    return ScoreParts(
        breakdown.forgetting_quality,
        breakdown.retain_ratio,
        breakdown.test_ratio,
        breakdown.epsilon_percentiles,
        breakdown.spread_ratio,
        breakdown.share_above,
        attacks,
    )
