"""Two of a team's own submissions, side by side."""

from typing import Annotated

from fastapi import Depends, Query, Request, Response

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server.competitions import service as competitions
from server.deps import SessionDep
from server.disclosure import gate
from server.submissions import service as submissions
from server.submissions import views as submission_views
from server.submissions.list_filter import Show
from server.web.deps import PlaceDep, require_viewer
from server.web.page_router import page_router
from server.web.rendering import page
from server.web.submission_lists import LINES

router = page_router()

Id = Annotated[str, Query(max_length=40)]


@router.get("/competitions/{slug}/submissions/compare", dependencies=[Depends(require_viewer)])
def own_comparison_page(
    request: Request, session: SessionDep, place: PlaceDep, *, first: Id = "", second: Id = ""
) -> Response:
    """Compare two of the hundred newest of the team that have a score."""
    found = submissions.page_of_team(
        session, place.competition, place.team, show=Show.NEWEST, final_ids=(), offset=0, limit=LINES
    )
    shown = submission_views.view(session, found, ended_in_full=False)
    views = {view.submission.id: view for view in shown if view.score}
    one, other = views.get(first), views.get(second)
    if (first and one is None) or (second and other is None):
        raise NotFound("Your team has no such scored submission among its newest")
    split = competitions.find_split(session, place.competition, Visibility.PUBLIC)
    return page(
        request,
        "own_comparison.html",
        place=place,
        tab="submissions",
        choices=[(key, _label(view)) for key, view in views.items()],
        first=one,
        second=other,
        offered=[*views, "", ""][:2],
        wanted=bool(first or second),
        oracle=gate.get_oracle_score(split),
        paired=submission_views.compare_own(session, one.submission, other.submission) if one and other else None,
    )


def _label(view: submission_views.SubmissionView) -> str:
    score = f"{view.score.final_score:.5f}" if view.score else ""
    return f"{view.submission.message or view.submission.filename}, {score}"
