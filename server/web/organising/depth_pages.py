"""One submission in depth, and beside another one, on either split."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from sqlalchemy.orm import Session

from server.deps import SessionDep, StorageDep
from server.errors import Conflict, NotFound
from server.evaluations import paired
from server.evaluations.paired import Paired
from server.leaderboard import service as leaderboards
from server.models.competition import Visibility
from server.models.evaluation import Evaluation, PrivateScore, PublicScore
from server.models.submission import Submission
from server.storage import Storage
from server.submissions import service as submissions
from server.web import figures
from server.web.deps import OrganiserPlaceDep, Place
from server.web.failures import failure_of
from server.web.organising import submissions_repository as repository
from server.web.organising.code_view import highlighted_files
from server.web.organising.depth import EXAMPLES, Array, Depth, depth_of, epsilon_rows, epsilons
from server.web.organising.split_report import class_names, report_of
from server.web.rendering import figure, page
from server.web.routing import page_router

router = page_router()

Score = PublicScore | PrivateScore
HISTOGRAMS = {
    "retain": "accuracy on the retain set",
    "test": "accuracy on the test set",
    "hardness": "separation of unlearned and retrained models",
    **dict.fromkeys(EXAMPLES, "logit-scaled confidence"),
}
MOST_OTHERS = 30


@dataclass(frozen=True)
class Sight:
    """One submission on one split: its evaluation and its score, if it has them."""

    submission: Submission
    visibility: Visibility
    evaluation: Evaluation | None
    score: Score | None

    @property
    def epsilon(self) -> Array | None:
        return epsilons(self.score.epsilon) if self.score else None

    @property
    def query(self) -> str:
        """What leads to this split again."""
        return "?split=private" if self.visibility is Visibility.PRIVATE else ""


def organised_submission(submission_id: str, session: SessionDep, place: OrganiserPlaceDep) -> Submission:
    """Return the submission in the address, which is one of the competition's. Raises NotFound."""
    return submissions.of_competition(session, place.competition, submission_id)


OrganisedSubmission = Annotated[Submission, Depends(organised_submission)]


async def chosen_split(place: OrganiserPlaceDep, split: Visibility = Visibility.PUBLIC) -> Visibility:
    """Return the split in the address. Raises NotFound for a private one before the competition has closed."""
    if split is Visibility.PRIVATE and not _may_see_private(place):
        raise NotFound(f"{place.competition.slug} has no private scores before it closes")
    return split


SplitDep = Annotated[Visibility, Depends(chosen_split)]


def sight(session: SessionDep, submission: OrganisedSubmission, visibility: SplitDep) -> Sight:
    """Return the submission in the address on the split that is looked at."""
    return _sight(session, submission, visibility)


SightDep = Annotated[Sight, Depends(sight)]


@router.get("/organise/{slug}/submissions/{submission_id}")
def depth_page(
    request: Request,
    session: SessionDep,
    place: OrganiserPlaceDep,
    *,
    storage: StorageDep,
    seen: SightDep,
) -> Response:
    depth = _depth(session, storage, place, seen)
    evaluation, submission = seen.evaluation, seen.submission
    return page(
        request,
        "organise/submission.html",
        place=place,
        room="submissions",
        s=submission,
        seen=seen,
        evaluation=evaluation,
        score=seen.score,
        epsilon_stored=seen.epsilon is not None,
        attempts=repository.attempts(session, evaluation.id) if evaluation else [],
        logs=repository.logs(session, submission.id),
        files=highlighted_files(storage, submission),
        failure=failure_of(submission, evaluation=evaluation),
        depth=depth,
        class_names=class_names(report_of(storage, place.competition.slug, seen.visibility)) if depth else [],
        may_see_private=_may_see_private(place),
        others=_others(session, place, seen) if seen.score else [],
    )


@router.get("/organise/{slug}/submissions/{submission_id}/figures/{name}.json")
def depth_figure(
    name: str, session: SessionDep, place: OrganiserPlaceDep, *, storage: StorageDep, seen: SightDep
) -> Response:
    if name == "epsilon" and seen.epsilon is not None:
        return figure(figures.epsilons(epsilon_rows(seen.epsilon)))
    depth = _depth(session, storage, place, seen)
    if depth and name == "time":
        return figure(figures.time_of_runs(depth.run_times()))
    if depth is None or name not in HISTOGRAMS:
        raise NotFound(f"There is no figure {name!r} of this submission")
    return figure(figures.histogram(depth.rows(name), title=HISTOGRAMS[name]))


@router.get("/organise/{slug}/submissions/{submission_id}/compare")
def comparison_page(
    request: Request,
    session: SessionDep,
    place: OrganiserPlaceDep,
    *,
    seen: SightDep,
    other: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """Show two submissions side by side, and whether the paired test tells them apart."""
    wanted = other.strip()
    second = _other(session, place, wanted, seen.visibility) if wanted else None
    missing = bool(wanted) and second is None
    context: dict[str, Any] = {"result": None, "refusal": ""}
    if second and seen.score and second.score:
        context |= _compared(seen.score, second.score)
    return page(
        request,
        "organise/comparison.html",
        status=404 if missing else 200,
        place=place,
        room="submissions",
        seen=seen,
        second=second,
        wanted=wanted,
        missing=missing,
        others=_others(session, place, seen),
        both_have_epsilons=second is not None and seen.epsilon is not None and second.epsilon is not None,
        **context,
    )


@router.get("/organise/{slug}/submissions/{submission_id}/compare/{other}/{name}.json")
def comparison_figure(other: str, name: str, session: SessionDep, place: OrganiserPlaceDep, seen: SightDep) -> Response:
    second = _other(session, place, other, seen.visibility)
    a, b = seen.epsilon, second.epsilon if second else None
    if second is None or a is None or b is None or len(a) != len(b):
        raise NotFound("One of the submissions has no epsilons on this split")
    names = (_label(seen.submission), _label(second.submission))
    if name == "epsilon":
        return figure(figures.epsilons([*epsilon_rows(a, names[0]), *epsilon_rows(b, names[1])]))
    if name == "examples":
        rows = [{"example": index, "x": float(x), "y": float(y)} for index, (x, y) in enumerate(zip(a, b, strict=True))]
        return figure(figures.pairs(rows, x=f"epsilon of {names[0]}", y=f"epsilon of {names[1]}"))
    raise NotFound(f"There is no figure {name!r} of two submissions")


def _may_see_private(place: Place) -> bool:
    return leaderboards.may_see_private(place.competition, organiser=True)


def _sight(session: Session, submission: Submission, visibility: Visibility) -> Sight:
    evaluation, score = repository.current_evaluation(session, submission.id, visibility) or (None, None)
    return Sight(submission, visibility, evaluation, score)


def _other(session: Session, place: Place, submission_id: str, visibility: Visibility) -> Sight | None:
    submission = repository.submission(session, place.competition.id, submission_id)
    return _sight(session, submission, visibility) if submission else None


def _depth(session: Session, storage: Storage, place: Place, seen: Sight) -> Depth | None:
    if seen.evaluation is None or seen.score is None:
        return None
    shards = repository.shards_with_results(session, seen.evaluation.id)
    return depth_of(storage, seen.evaluation.split, place.competition.slug, shards, epsilon=seen.epsilon)


def _others(session: Session, place: Place, seen: Sight) -> Sequence[tuple[str, str]]:
    """Return id and description of submissions that one may want beside this one: the board's best, the team's own."""
    board = leaderboards.board_for(session, place.competition, seen.visibility, organiser=True)
    best = (
        (row.entry.submission_id, f"{row.entry.team}, {row.entry.score:.5f}")
        for row in board.rows
        if row.entry.submission_id
    )
    own = [
        (submission_id, f"{seen.submission.team.name}, {score:.5f}, {note}")
        for submission_id, note, score in repository.scored_of_team(
            session, seen.submission.team_id, seen.visibility, most=MOST_OTHERS
        )
    ]
    found = dict([*islice(best, MOST_OTHERS), *own])
    found.pop(seen.submission.id, None)
    return list(found.items())


def _compared(first: Score, second: Score) -> dict[str, Paired | str | None]:
    try:
        found = paired.compare(first.final_score, second.final_score, replicates=(first.replicates, second.replicates))
    except Conflict as error:
        return {"refusal": error.detail}
    return {"result": found}


def _label(submission: Submission) -> str:
    return f"{submission.team.name} {submission.id[:6]}"
