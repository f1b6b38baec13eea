"""What organisers decide about a final that failed on private data, and running any final again before the reveal."""

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server import audit
from server.competitions import competition_repository, competitions, lifecycle
from server.db import now
from server.errors import Conflict
from server.evaluations import evaluations, rerun
from server.finals import finals, finals_repository
from server.models.account import Account
from server.models.competition import Competition, CompetitionState
from server.models.evaluation import Evaluation
from server.models.submission import Submission


def exclude(session: Session, submission: Submission, *, actor: Account, reason: str) -> None:
    """Decide that a failed final is not on the private board."""
    competition = _locked_for_decision(session, submission)
    _exclude(session, competition, submission, actor=actor, reason=reason)
    _advance_again(session, competition)


def use_next_choice(session: Session, submission: Submission, *, actor: Account, reason: str) -> Submission:
    """Decide that the team's next best submission takes a failed final's place. Raises Conflict if there is none."""
    competition = _locked_for_decision(session, submission)
    if competition.parent_id is not None:
        raise Conflict(
            f"{submission.id} is a part of {submission.parent_id}, which was chosen for all its tasks: exclude it from "
            f"{competition.task_name}, or run it again"
        )
    others = finals_repository.candidates(session, competition.id, team_id=submission.team_id)
    rest = [c for c in others if not c.selected and c.submission_id != submission.id]
    if not rest:
        raise Conflict(f"The team has no other scored submission; exclude {submission.id} or run it again")
    _exclude(session, competition, submission, actor=actor, reason=reason)
    following = session.get_one(Submission, rest[0].submission_id)
    following.selected = True
    audit.record(session, actor, "final.replaced", following, reason=reason, data={"instead_of": submission.id})
    session.flush()
    _advance_again(session, competition)
    return following


def run_again(session: Session, submission: Submission, *, actor: Account, reason: str) -> Evaluation:
    """Decide that a failed final is evaluated on the private split once more."""
    competition = _locked_for_decision(session, submission)
    split = competitions.get_split(session, competition, Visibility.PRIVATE)
    evaluation = rerun.instead(session, submission, split)
    audit.record(session, actor, "final.run_again", competition=competition, subject=submission.id, reason=reason)
    return evaluation


def rescore(
    session: Session, competition: Competition, submission: Submission, *, actor: Account, reason: str
) -> Evaluation:
    """Evaluate a final on the private split again, at any time before the reveal. The caller holds the row lock."""
    if competitions.tasks(session, competition):
        raise Conflict(f"{submission.id} has parts, one for each task; run a part again")
    if competition.frozen_at is None or lifecycle.is_revealed(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; finals are run again between close and reveal")
    if submission.id not in {final.id for final in finals_repository.finals(session, competition.id)}:
        raise Conflict(f"{submission.id} is not a final")
    evaluation = rerun.instead(session, submission, competitions.get_split(session, competition, Visibility.PRIVATE))
    audit.record(session, actor, "final.run_again", competition=competition, subject=submission.id, reason=reason)
    for each in (competitions.root(session, competition), competition):
        if each.state == CompetitionState.PROVISIONAL:
            lifecycle.move(session, each, CompetitionState.CLOSED, actor=actor, reason=reason)
    return evaluation


def _locked_for_decision(session: Session, submission: Submission) -> Competition:
    competition = competition_repository.locked_with_root(session, submission.competition_id)
    if competitions.tasks(session, competition):
        raise Conflict(f"{submission.id} has parts, one for each task; decide on the part that failed")
    if competition.state != CompetitionState.CLOSED or competition.frozen_at is None:
        raise Conflict(f"{competition.slug} is {competition.state}; decisions are taken while finals are re-scored")
    split = competitions.get_split(session, competition, Visibility.PRIVATE)
    evaluation = finals_repository.current_evaluations(session, [submission.id], split.id).get(submission.id)
    if (
        not submission.selected
        or submission.excluded_at is not None
        or not evaluations.needs_decision(session, evaluation)
    ):
        raise Conflict(f"{submission.id} is not a final that has failed")
    return competition


def _exclude(
    session: Session, competition: Competition, submission: Submission, *, actor: Account, reason: str
) -> None:
    submission.excluded_at = now()
    audit.record(session, actor, "final.excluded", competition=competition, subject=submission.id, reason=reason)
    session.flush()


def _advance_again(session: Session, competition: Competition) -> None:
    finals.advance(session, competitions.root(session, competition), at=now())
