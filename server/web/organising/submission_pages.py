"""The organisers' list of submissions, and one of them in depth."""

from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sqlalchemy.orm import Session

from server.competitions import service as competitions
from server.deps import SessionDep, StorageDep
from server.errors import NotFound
from server.evaluations import service as evaluations
from server.models.competition import Visibility
from server.models.evaluation import EvaluationState
from server.models.submission import Submission
from server.storage import Storage
from server.submissions import service as submissions
from server.submissions.package import LIMITS, read_zip
from server.web import figures
from server.web.deps import MemberDep, OrganiserPlaceDep, Place
from server.web.failures import ADVICE, failure_of
from server.web.organising import submissions_repository as repository
from server.web.organising.depth import EXAMPLES, Depth, depth_of
from server.web.organising.submissions_repository import LINES, Filters
from server.web.rendering import figure, page
from server.web.routing import page_router

router = page_router()

Short = Annotated[str, Query(max_length=60)]
TITLES = {
    "retain": "accuracy on the retain set",
    "test": "accuracy on the test set",
    "time": "wall time of a run, seconds",
    "separation": "separation of unlearned and retrained models",
    **dict.fromkeys(EXAMPLES, "logit-scaled confidence"),
}
LONGEST_CODE = 200_000


def organised_submission(
    submission_id: str, session: SessionDep, place: OrganiserPlaceDep, viewer: MemberDep
) -> Submission:
    """Return the submission in the address, which is one of the competition's. Raises NotFound."""
    submission = submissions.get_own(session, submission_id, viewer)
    if submission.competition_id != place.competition.id:
        raise NotFound(f"{place.competition.slug} has no submission {submission_id!r}")
    return submission


OrganisedSubmission = Annotated[Submission, Depends(organised_submission)]


@router.get("/organise/{slug}/submissions")
def submissions_page(
    request: Request,
    session: SessionDep,
    place: OrganiserPlaceDep,
    *,
    stage: Short = "",
    fault: Short = "",
    error_class: Short = "",
    team: Short = "",
    only: Short = "",
    page_number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
) -> Response:
    filters = Filters(stage=stage, fault=fault, error_class=error_class, team=team.strip(), only=only)
    lines = repository.listed(session, place.competition.id, filters, page=page_number)
    return page(
        request,
        "organise/submissions.html",
        place=place,
        room="submissions",
        filters=filters,
        lines=lines[:LINES],
        has_more=len(lines) > LINES,
        page_number=page_number,
        error_classes=sorted({*ADVICE, "host-fault"}),
    )


@router.get("/organise/{slug}/submissions/{submission_id}")
def depth_page(
    request: Request,
    session: SessionDep,
    place: OrganiserPlaceDep,
    *,
    storage: StorageDep,
    submission: OrganisedSubmission,
) -> Response:
    evaluation = repository.public_evaluation(session, submission.id)
    depth = _depth(session, storage, place, submission)
    return page(
        request,
        "organise/submission.html",
        place=place,
        room="submissions",
        s=submission,
        evaluation=evaluation,
        score=repository.public_score(session, evaluation.id) if evaluation else None,
        progress=evaluations.progress(session, [submission.id]).get(submission.id),
        attempts=repository.attempts(session, evaluation.id) if evaluation else [],
        logs=repository.logs(session, submission.id),
        files=_code(storage, submission),
        failure=failure_of(submission),
        depth=depth,
        titles=TITLES,
    )


@router.get("/organise/{slug}/submissions/{submission_id}/figures/{name}.json")
def depth_figure(
    name: str,
    session: SessionDep,
    place: OrganiserPlaceDep,
    *,
    storage: StorageDep,
    submission: OrganisedSubmission,
) -> Response:
    depth = _depth(session, storage, place, submission)
    if depth is None or name not in TITLES:
        raise NotFound(f"There is no figure {name!r} of this submission")
    return figure(figures.histogram(depth.rows(name), title=TITLES[name]))


def _depth(session: Session, storage: Storage, place: Place, submission: Submission) -> Depth | None:
    evaluation = repository.public_evaluation(session, submission.id)
    if evaluation is None or evaluation.state != EvaluationState.SCORED:
        return None
    split = competitions.split_of(session, place.competition, Visibility.PUBLIC)
    shards = repository.shards_with_results(session, evaluation.id)
    return depth_of(storage, split, place.competition.slug, shards)


def _code(storage: Storage, submission: Submission) -> list[tuple[str, Markup]]:
    """Return the submission's Python files, highlighted."""
    data = submissions.code_of(storage, submission)
    files = {"submission.py": data} if submission.kind == "py" else read_zip(data, limits=LIMITS)
    return [(name, _highlighted(content)) for name, content in sorted(files.items()) if name.endswith(".py")]


def _highlighted(content: bytes) -> Markup:
    formatter = HtmlFormatter(nowrap=True)
    text = content[:LONGEST_CODE].decode("utf-8", "replace")
    lines: list[Any] = highlight(text, PythonLexer(stripnl=False), formatter).splitlines()
    numbered = (f'<span class="linenos">{number}</span>{line}' for number, line in enumerate(lines, start=1))
    return Markup("\n".join(numbered))  # noqa: S704 (the formatter escapes)
