"""The organisers' list of submissions."""

from typing import Annotated

from fastapi import Query, Request, Response

from server.deps import SessionDep
from server.web.deps import OrganiserPlaceDep
from server.web.failures import ADVICE
from server.web.organising import submissions_repository as repository
from server.web.organising.submissions_repository import LINES, Filters
from server.web.rendering import page
from server.web.routing import page_router

router = page_router()

Short = Annotated[str, Query(max_length=60)]


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
