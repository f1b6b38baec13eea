"""Finals: what each team sends to the private split, and its re-scoring after the close.

A closed competition first waits until everything received has a public score or a named failure. Then the choice is
frozen, every final is evaluated on the private split, and the board becomes provisional once each has a score or the
organiser has decided what a failure means. Every step looks at the database and does what is missing, so it may be
taken by anyone, at any time, twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

import structlog
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server import audit
from server.competitions import competition_repository, competitions, lifecycle, participation
from server.competitions.stored_file import UnreadableCompetition, stored_file
from server.config import get_settings
from server.datetime_format import in_words
from server.db import now
from server.disclosure import gate
from server.errors import Conflict
from server.evaluations import evaluations, parts, rerun
from server.finals import finals_repository
from server.finals.finals_repository import Candidate
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Split, Team
from server.models.evaluation import Evaluation, EvaluationState, PrivateScore
from server.models.submission import ENDED, Stage, Submission
from server.teams import team_repository

COUNTS_OF_RESCORING = ("waiting_public", "finals", "scored", "unconfirmed", "runs_done", "runs_total")


@dataclass(frozen=True)
class Failed:
    """A final that failed on private data, and waits for the organiser's decision."""

    submission: Submission
    evaluation: Evaluation


@dataclass(frozen=True)
class Rescoring:
    """How far the private evaluations are. unconfirmed: private scores that take no rank until they are confirmed."""

    is_frozen: bool
    waiting_public: int
    finals: int
    scored: int
    unconfirmed: int
    runs_done: int
    runs_total: int
    failed: tuple[Failed, ...]


def choose(session: Session, submission: Submission, *, selected: bool, actor: Account) -> Submission:
    """Make a submission a final of its team, or no longer. Raises Conflict if too late or too many, NotAllowed."""
    competition = competition_repository.held(session, submission.competition_id)
    lifecycle.require_no_task(competition)
    participation.check_admitted(session, competition, actor)
    team = team_repository.locked(session, submission.team_id)
    _check_still_open(competition, team)
    if selected and not submission.selected:
        _check_may_be_final(submission)
        limit = stored_file(competition).limits.final_selections
        chosen = finals_repository.selected(session, submission.team_id, competition_id=competition.id)
        if len(chosen) >= limit:
            raise Conflict(f"A team chooses at most {limit} submissions; take one back first")
    if submission.selected != selected:
        submission.selected = selected
        for part in parts.of(session, [submission.id]).get(submission.id, ()):
            part.selected = selected
        action = "submission.selected" if selected else "submission.deselected"
        audit.record(session, actor, action, competition=competition, subject=submission.id)
    return submission


def chosen_ids(session: Session, competition: Competition, team_id: str) -> set[str]:
    """Return the ids of what a team chose; once the finals are frozen, of all its finals."""
    return {each.id for each in finals_repository.selected(session, team_id, competition_id=competition.id)}


def would_count(session: Session, competition: Competition, team_id: str) -> list[str]:
    """Return the ids of the submissions that would be a team's finals if the competition closed now.

    On the ladder only those that it chose: which of the others is best is what the ladder hides. With tasks, each
    submission that is a final in one of them.
    """
    if tasks := competitions.tasks(session, competition):
        ids = [each for task in tasks for each in would_count(session, task, team_id)]
        return finals_repository.parent_submission_ids(session, ids)
    if gate.shows_ladder(competition):
        return [each.id for each in finals_repository.selected(session, team_id, competition_id=competition.id)]
    limit = stored_file(competition).limits.final_selections
    return [
        c.submission_id
        for c in pick(finals_repository.candidates(session, competition.id, team_id=team_id), limit=limit)
    ]


def pick(candidates: Sequence[Candidate], *, limit: int) -> list[Candidate]:
    """Return one team's finals of its candidates, best first: what it chose, else its best."""
    chosen = [candidate for candidate in candidates if candidate.selected]
    return (chosen or list(candidates))[:limit]


def advance(session: Session, competition: Competition, *, at: datetime) -> None:
    """Take the next step of a closed competition, and of each of its tasks. The caller holds its row lock.

    The finals of all tasks are frozen at once: when no team may submit any more, what was received in time can no
    longer be on its way into the database, and each of these submissions has ended. A task is provisional once its own
    have scores; the competition then is when all tasks are.
    """
    if competition.state != CompetitionState.CLOSED:
        return
    evaluated = competitions.tasks(session, competition) or [competition]
    if competition.frozen_at is None:
        if at < last_deadline(session, competition) + timedelta(seconds=get_settings().close_grace_s):
            return
        if any(finals_repository.unfinished(session, each.id) for each in evaluated):
            return
        for each in evaluated:
            _freeze(session, each, at=at)
        competition.frozen_at = at
        _mark_wholes(session, competition, evaluated)
    settled = [each for each in evaluated if _all_settled(session, each)]
    for each in settled:
        lifecycle.move(session, each, CompetitionState.PROVISIONAL, actor=None)
    if len(settled) == len(evaluated):
        lifecycle.move(session, competition, CompetitionState.PROVISIONAL, actor=None)


def last_deadline(session: Session, competition: Competition) -> datetime:
    """Return until when the last team may submit: the close, or the latest extension."""
    extended = finals_repository.last_extension(session, competition.id)
    return max(competition.closes_at, extended) if extended else competition.closes_at


def rescoring(session: Session, competition: Competition) -> Rescoring:
    """Return how far the re-scoring is, for organisers; of a competition with tasks, that of all of them."""
    if tasks := competitions.tasks(session, competition):
        return _together([rescoring(session, task) for task in tasks])
    split = competitions.get_split(session, competition, Visibility.PRIVATE)
    frozen = competition.frozen_at is not None
    finals = finals_repository.finals(session, competition.id) if frozen else []
    current = finals_repository.current_evaluations(session, [final.id for final in finals], split.id)
    failed = [
        Failed(final, current[final.id])
        for final in finals
        if evaluations.needs_decision(session, current.get(final.id))
    ]
    return Rescoring(
        is_frozen=frozen,
        waiting_public=0 if frozen else finals_repository.unfinished(session, competition.id),
        finals=len(finals),
        scored=sum(e.state == EvaluationState.SCORED for e in current.values()),
        unconfirmed=count_unconfirmed(session, competition, Visibility.PRIVATE),
        runs_done=finals_repository.runs_done(session, [e.id for e in current.values()]),
        runs_total=sum(e.n_runs for e in current.values()),
        failed=tuple(failed),
    )


def count_unconfirmed(session: Session, competition: Competition, visibility: Visibility) -> int:
    """Return how many scores on a split take no rank until an organiser confirms them, in all tasks."""
    evaluated = competitions.tasks(session, competition) or [competition]
    return sum(finals_repository.count_unconfirmed(session, each.id, visibility) for each in evaluated)


def waiting_for_decision(session: Session, competition: Competition) -> tuple[Failed, ...]:
    """Return the finals that failed on private data and that the organisers have not decided on."""
    return rescoring(session, competition).failed if competition.state == CompetitionState.CLOSED else ()


def is_complete(session: Session, competition: Competition) -> bool:
    """Return whether every final has a private score, in every task."""
    if tasks := competitions.tasks(session, competition):
        return all(is_complete(session, task) for task in tasks)
    split = competitions.get_split(session, competition, Visibility.PRIVATE)
    finals = finals_repository.finals(session, competition.id)
    current = finals_repository.current_evaluations(session, [final.id for final in finals], split.id)
    return all(final.id in current and current[final.id].state == EvaluationState.SCORED for final in finals)


def revealed_scores(session: Session, submissions: Sequence[Submission]) -> dict[str, PrivateScore]:
    """Return private scores by submission id, of those whose competition has been revealed."""
    revealed = [submission.id for submission in submissions if lifecycle.is_revealed(submission.competition)]
    return finals_repository.private_scores(session, revealed) if revealed else {}


def reveal(session: Session, competition: Competition, *, actor: Account | None, reason: str = "") -> Competition:
    """Publish the private board; does nothing to a published one. Raises Conflict unless it is provisional."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if lifecycle.is_revealed(competition):
        return competition
    if not lifecycle.may_move(competition, CompetitionState.FINAL):
        raise Conflict(f"{competition.slug} is {competition.state}; {_before_the_reveal(competition)}")
    lifecycle.move(session, competition, CompetitionState.FINAL, actor=actor, reason=reason)
    competition.revealed_at = now()
    competitions.share(session, competition)
    return competition


def _before_the_reveal(competition: Competition) -> str:
    """Return what comes before the private board can be shown."""
    if competition.state == CompetitionState.CLOSED:
        return "its results can be revealed once every final is scored on the private split, or decided on"
    return "its results can be revealed after it has closed and its finals are scored on the private split"


def _freeze(session: Session, competition: Competition, *, at: datetime) -> None:
    limit = stored_file(competition).limits.final_selections
    candidates = finals_repository.candidates(session, competition.id)
    chosen = {
        final.submission_id
        for _team, own in groupby(candidates, key=lambda candidate: candidate.team_id)
        for final in pick(list(own), limit=limit)
    }
    finals_repository.mark(session, competition.id, chosen)
    competition.frozen_at = at
    audit.record(session, None, "competition.finals_frozen", competition, data={"submissions": sorted(chosen)})
    session.flush()


def _mark_wholes(session: Session, competition: Competition, evaluated: Sequence[Competition]) -> None:
    """Show as chosen each submission that is a final in some task."""
    if [each.id for each in evaluated] == [competition.id]:
        return
    ids = [final.id for task in evaluated for final in finals_repository.finals(session, task.id)]
    finals_repository.mark(session, competition.id, finals_repository.parent_submission_ids(session, ids))
    session.flush()


def _together(tasks: Sequence[Rescoring]) -> Rescoring:
    return Rescoring(
        is_frozen=all(task.is_frozen for task in tasks),
        failed=tuple(failed for task in tasks for failed in task.failed),
        **{name: sum(getattr(task, name) for task in tasks) for name in COUNTS_OF_RESCORING},
    )


def _all_settled(session: Session, competition: Competition) -> bool:
    """Start what is missing, retry what the host failed at. Return whether nothing is left to wait for."""
    split = competitions.get_split(session, competition, Visibility.PRIVATE)
    finals = finals_repository.finals(session, competition.id)
    current = finals_repository.current_evaluations(session, [final.id for final in finals], split.id)
    states = [_settle(session, final, split, current.get(final.id)) for final in finals]
    return all(states)


def _settle(session: Session, final: Submission, split: Split, evaluation: Evaluation | None) -> bool:
    if evaluation is None:
        evaluations.start(session, final, split, smoke=False)
        return False
    if evaluation.state == EvaluationState.FAILED and not evaluations.needs_decision(session, evaluation):
        rerun.instead(session, final, split)
        return False
    return evaluation.state == EvaluationState.SCORED


def _check_still_open(competition: Competition, team: Team) -> None:
    until = lifecycle.deadline(competition, team)
    is_extended = competition.state == CompetitionState.CLOSED and competition.frozen_at is None
    if not (competition.state == CompetitionState.OPEN or is_extended) or now() >= until:
        raise Conflict(f"Finals of {competition.slug} are chosen while it is open, until {in_words(until)}")


def _check_may_be_final(submission: Submission) -> None:
    if submission.stage in ENDED and submission.stage != Stage.SCORED:
        raise Conflict(f"The submission is {submission.stage}; only one that has a score, or may get one, is chosen")
    if submission.disqualified_at is not None:
        raise Conflict("The submission was disqualified")
    if not submission.is_official:
        raise Conflict(f"The submission is of the phase {submission.phase!r}, of which none becomes a final")


log = structlog.get_logger()
S = CompetitionState


def tick(session: Session, at: datetime) -> int:
    """Move every competition whose time has come. Return how many moved. Safe to run twice, and twice at once."""
    return sum(
        _step_if_readable(session, competition_id, at=at) for competition_id in competition_repository.due(session, at)
    )


def _step_if_readable(session: Session, competition_id: str, *, at: datetime) -> bool:
    """Take one competition's step. What another version has stored is left to a program of that version."""
    try:
        with session.begin_nested():
            return _step(session, competition_id, at=at)
    except UnreadableCompetition as error:
        log.warning("competition not moved", competition=competition_id, reason=error.detail)
        return False


def _step(session: Session, competition_id: str, *, at: datetime) -> bool:
    competition = competition_repository.locked(session, competition_id)
    before = competition.state
    if competition.state == S.PREPARING:
        competitions.note_prepared(session, competition)
    if competition.state == S.READY and competition.opens_at <= at:
        lifecycle.move(session, competition, S.OPEN, actor=None)
    if competition.state == S.OPEN and competition.closes_at <= at:
        _close(session, competition, at=at)
    advance(session, competition, at=at)
    if competition.state != before:
        log.info("competition moved", competition=competition.slug, before=before, after=competition.state)
    return competition.state != before


def _close(session: Session, competition: Competition, *, at: datetime) -> None:
    lifecycle.move(session, competition, S.CLOSED, actor=None)
    competition.closed_at = at
    competitions.share(session, competition)
