"""Scores, written exactly once (the primary key is the evaluation), the doubts about them, and groups of ties."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from lethe.competition.file import Scoring
from lethe.competition.section import read_stored
from lethe.competition.visibility import Visibility
from server.competitions.stored_file import stored_file
from server.db import now
from server.disclosure import gate
from server.evaluations import evaluation_repository, leak_budget
from server.metric_results import metric_results
from server.models.competition import Competition, Split, Team
from server.models.evaluation import (
    Evaluation,
    EvaluationState,
    PrivateScore,
    PublicScore,
    Rejudging,
    score_table,
)
from server.models.submission import Stage, Submission
from server.notifications import dispatch
from server.queue import GROUP_TIES, send_after_commit
from server.scoring import tie_groups_repository

SAME_SCORE = 1e-12


@dataclass(frozen=True)
class ScoreDoubt:
    """See `lethe.metrics.scoring.calibration.Doubt`.

    disagreement: by how much of the oracle's F a published family gives more than crossfit; None where it could not be
    computed, and until it is, after the score. reasons: sentences. is_suspect: there are some. was_unconfirmed: the
    score needs a confirmation, or has one.
    """

    disagreement: float | None
    reasons: tuple[str, ...]
    was_unconfirmed: bool

    @property
    def is_suspect(self) -> bool:
        return bool(self.reasons)

    @classmethod
    def read(cls, details: Mapping[str, Any]) -> Self | None:
        """Return it from a score's details; None for a score from before version 0.3."""
        flags = details.get("flags", {})
        if "held" not in flags:
            return None
        return cls(flags.get("disagreement"), tuple(flags["reasons"]), bool(flags["held"]))


def get_scoring(session: Session, evaluation: Evaluation) -> Scoring:
    """Return the section [scoring]. Once a re-judging is applied, the competition's is the one that it tried."""
    tried = None if evaluation.is_current else session.get(Rejudging, evaluation.rejudging_id)
    if tried is not None and tried.scoring is not None:
        return read_stored(Scoring, tried.scoring)
    split = session.get_one(Split, evaluation.split_id)
    return stored_file(session.get_one(Competition, split.competition_id)).scoring


def note_oracle(session: Session, evaluation: Evaluation, oracle: dict[str, Any]) -> None:
    """Keep the oracle's score by the scoring of an evaluation: with its split, or until its re-judging is applied."""
    if not evaluation.is_current:
        tried = session.get(Rejudging, evaluation.rejudging_id)
        if tried is not None and tried.scoring is not None:
            tried.oracle = oracle
        return
    split = session.get_one(Split, evaluation.split_id)
    known = (split.oracle or {}).get("final_score")
    if known is not None and abs(known - oracle["final_score"]) > SAME_SCORE:
        split.oracle = {**(split.oracle or {}), **oracle}


class ScoreRecord(BaseModel):
    """The score of one evaluation, with its parts."""

    model_config = ConfigDict(frozen=True)

    final_score: float
    forgetting_quality: float
    retain_ratio: float
    test_ratio: float
    interval_low: float | None = None
    interval_high: float | None = None
    details: dict[str, Any]
    replicates: dict[str, Any] | None = None
    epsilon: bytes | None = None  # as `models.evaluation` keeps it


def claim(session: Session, evaluation_id: str, *, lease_s: float) -> int | None:
    """Lease the scoring of an evaluation. Return the attempt, None if there is nothing to do.

    A worker holds it until its score is recorded and `record_doubt` was called; if it is lost, another claims it.
    """
    attempt = evaluation_repository.claim_scoring(session, evaluation_id, lease_s=lease_s)
    if attempt is None:
        return None
    if session.get_one(Evaluation, evaluation_id).state not in (EvaluationState.SCORING, EvaluationState.SCORED):
        evaluation_repository.end_scoring(session, evaluation_id, attempt)
        return None
    return attempt


def record(
    session: Session,
    evaluation_id: str,
    score: ScoreRecord,
    *,
    oracle: dict[str, Any] | None = None,
    asked_at: datetime | None = None,
) -> bool:
    """Store the score and end the evaluation. Return False if that was done before, or is no longer wanted.

    oracle: the oracle's score by the same metric, as `Split.oracle` holds it. asked_at: `finished_at` of the evaluation
    when its outputs were read; they may have been dropped and made again since.
    """
    evaluation = evaluation_repository.lock_evaluation(session, evaluation_id)
    if evaluation.state != EvaluationState.SCORING.value or evaluation_repository.has_score(session, evaluation_id):
        return False
    if asked_at is not None and evaluation.finished_at != asked_at:
        return False
    split = session.get_one(Split, evaluation.split_id)
    is_public = split.visibility == Visibility.PUBLIC.value
    stored = score_table(split.visibility)(
        evaluation_id=evaluation_id,
        submission_id=evaluation.submission_id,
        scorer_version=evaluation.scorer_version,
        computed_at=now(),
        **score.model_dump(),
    )
    submission = session.get_one(Submission, evaluation.submission_id)
    is_baseline = session.get_one(Team, submission.team_id).is_baseline
    stored.is_unconfirmed = not is_baseline and bool(score.details.get("flags", {}).get("held"))
    session.add(stored)
    if oracle is not None:
        note_oracle(session, evaluation, oracle)
    evaluation.state = EvaluationState.SCORED.value
    evaluation.finished_at = now()
    competition = session.get_one(Competition, split.competition_id)
    if is_public and evaluation.is_current:
        leak_budget.count(session, evaluation, gate.bits_counted(gate.score(stored, competition)))
        submission.stage = Stage.SCORED
        submission.finished_at = now()
        dispatch.notify(session, submission.competition_id, "submission.scored", {"submission": submission.id})
    notify_unconfirmed(session, evaluation, stored)
    metric_results.request(session, evaluation, stored_file(competition))
    if score.replicates is not None:
        send_after_commit(session, GROUP_TIES, split.id)
    return True


def record_doubt(session: Session, evaluation_id: str, attempt: int, flags: Mapping[str, Any]) -> None:
    """Store what an organiser should look at, and end the lease of the scoring, if the attempt is the current one."""
    if not evaluation_repository.end_scoring(session, evaluation_id, attempt):  # first: every step locks it first
        return
    score: PublicScore | PrivateScore | None = session.get(PublicScore, evaluation_id, with_for_update=True)
    score = score or session.get(PrivateScore, evaluation_id, with_for_update=True)
    if score is not None:
        score.details = {**score.details, "flags": dict(flags)}


def notify_unconfirmed(session: Session, evaluation: Evaluation, score: PublicScore | PrivateScore) -> None:
    """Notify the organisers of a score that counts now, and takes no rank until they confirm it."""
    if not evaluation.is_current or not score.is_unconfirmed:
        return
    split = session.get_one(Split, evaluation.split_id)
    data = {"submission": evaluation.submission_id, "split": split.visibility}
    dispatch.notify(session, split.competition_id, "submission.unconfirmed", data)


@dataclass(frozen=True)
class TeamStanding:
    """The best evaluation of one team, and the replicates that were made with its score."""

    evaluation_id: str
    final_score: float
    replicates: dict[str, Any]


def of_split(session: Session, split_id: str) -> list[TeamStanding]:
    """Return every ranked team's standing on the split; scores without replicates are left out."""
    split = session.get_one(Split, split_id)
    return [
        TeamStanding(row.evaluation_id, row.final_score, row.replicates)
        for row in tie_groups_repository.best_of_teams(session, split)
        if row.replicates is not None
    ]


def record_groups(session: Session, split_id: str, groups: Mapping[str, int]) -> None:
    """Store the tied group of each evaluation, by evaluation id; 0 is the group of the best."""
    tie_groups_repository.set_groups(session, session.get_one(Split, split_id), groups)
