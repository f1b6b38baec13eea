"""What a team sees of its submissions: how far they are, their scores as they are shown, and two of them compared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server.competitions.stored_file import stored_file
from server.db import now
from server.disclosure import gate
from server.disclosure.gate import ShownNumber, ShownPaired, ShownScore
from server.disclosure.shown_progress import shown_progress
from server.errors import Conflict
from server.evaluations import evaluations, paired_test, parts
from server.evaluations.evaluations import EvaluationProgress
from server.finals import finals
from server.leaderboard import boards, combination
from server.leaderboard.ranking import Rung
from server.models.account import Account
from server.models.evaluation import PublicScore
from server.models.submission import ENDED, Stage, Submission
from server.submissions import submission_repository

MAX_UNFINISHED = 10


@dataclass(frozen=True)
class SubmissionView:
    """A submission as its team may see it. parts: in each task. combined: of its public scores; None for ranks."""

    submission: Submission
    progress: EvaluationProgress | None
    score: ShownScore | None
    can_cancel: bool
    private_score: ShownScore | None = None  # once revealed
    parts: tuple["SubmissionView", ...] = ()
    combined: ShownNumber | None = None

    @property
    def failed_parts(self) -> list["SubmissionView"]:
        """The parts that failed, also where another one has a score."""
        return [part for part in self.parts if part.submission.stage == Stage.FAILED]


def list_unfinished(session: Session, account: Account) -> list[SubmissionView]:
    """Return what of the account's teams has not ended, in all competitions, the newest first; at most ten."""
    return view(session, submission_repository.unfinished_of_account(session, account.id, limit=MAX_UNFINISHED))


def view(
    session: Session, submissions: Sequence[Submission], *, ended_in_full: bool = True, exact: bool = False
) -> list[SubmissionView]:
    """Return what teams may see, in order. ended_in_full: progress of ended ones too. exact: for organisers."""
    by_submission = parts.of(session, [each.id for each in submissions if stored_file(each.competition).tasks])
    views = _views(session, [*submissions, *chain(*by_submission.values())], ended_in_full=ended_in_full, exact=exact)
    of_parts = dict(zip((part.id for part in chain(*by_submission.values())), views[len(submissions) :], strict=True))
    return [
        _with_parts(view, [of_parts[part.id] for part in by_submission.get(view.submission.id, ())])
        for view in views[: len(submissions)]
    ]


def _with_parts(view: SubmissionView, of_parts: Sequence[SubmissionView]) -> SubmissionView:
    """Return a submission with its parts: the runs that are done are those of all of them."""
    if not of_parts:
        return view
    combined = combination.of_one(
        {str(part.submission.competition.task_name): part.score.final_score for part in of_parts if part.score},
        stored_file(view.submission.competition),
    )
    can_cancel = any(part.can_cancel for part in of_parts)
    view = replace(view, parts=tuple(of_parts), combined=combined, can_cancel=can_cancel)
    known = [part.progress for part in of_parts if part.progress]
    if not known:
        return view
    together = EvaluationProgress(
        runs_done=sum(progress.runs_done for progress in known),
        runs_total=sum(progress.runs_total for progress in known),
        elapsed_s=None,
        remaining_s=None,
        attempts=(),
    )
    return replace(view, progress=together)


def _views(
    session: Session, submissions: Sequence[Submission], *, ended_in_full: bool, exact: bool
) -> list[SubmissionView]:
    ids = [submission.id for submission in submissions if ended_in_full or submission.stage not in ENDED]
    progress = evaluations.progress(session, ids)
    if not exact:
        ended = {submission.id for submission in submissions if submission.stage in ENDED}
        progress = {key: shown_progress(own, is_over=key in ended, at=now()) for key, own in progress.items()}
    scores = _public_scores(session, submissions)
    revealed = finals.revealed_scores(session, submissions)
    cancellable = {each.id for each in evaluations.cancellable(session, submissions)}
    return [
        SubmissionView(
            submission=submission,
            progress=progress.get(submission.id),
            score=scores.get(submission.id),
            can_cancel=submission.id in cancellable,
            private_score=gate.score(
                revealed[submission.id], submission.competition, received_at=submission.received_at
            )
            if submission.id in revealed
            else None,
        )
        for submission in submissions
    ]


def compare_own(session: Session, first: Submission, second: Submission) -> ShownPaired | None:
    """Compare two public scores of one team; None where intervals are not shown. Raises NotFound for others."""
    if first.team_id != second.team_id:
        raise NotFound("The two submissions are of two teams")
    metric = stored_file(first.competition).scoring
    scores = submission_repository.public_scores(session, [first.id, second.id])
    if not metric.show_intervals or gate.shows_ladder(first.competition) or not {first.id, second.id} <= set(scores):
        return None
    a, b = scores[first.id], scores[second.id]
    try:
        return gate.paired(paired_test.compare(a.final_score, b.final_score, replicates=(a.replicates, b.replicates)))
    except Conflict:  # no replicates, or of another kind
        return None


def _public_scores(session: Session, submissions: Sequence[Submission]) -> dict[str, ShownScore]:
    """Return the public score of each submission as its team may see it, by submission id."""
    scores = submission_repository.public_scores(session, [submission.id for submission in submissions])
    scored = [submission for submission in submissions if submission.id in scores]
    on_ladder = [submission for submission in scored if gate.shows_ladder(submission.competition)]
    rungs: dict[str, Rung] = {}
    for competition in {s.competition_id: s.competition for s in on_ladder}.values():
        team_ids = {s.team_id for s in on_ladder if s.competition_id == competition.id}
        rungs |= boards.ladder_rungs(session, competition, list(team_ids))
    # What is not on the ladder, because it was disqualified, has no score there.
    shown = [s for s in scored if s.id in rungs or s not in on_ladder]
    return {s.id: _as_shown(scores[s.id], s, rungs.get(s.id)) for s in shown}


def _as_shown(stored: PublicScore, submission: Submission, rung: Rung | None) -> ShownScore:
    competition, at = submission.competition, submission.received_at
    if rung is None:
        return gate.score(stored, competition, received_at=at)
    return gate.score(stored, competition, received_at=at, rung=rung.score, is_unconfirmed=rung.is_unconfirmed)
