"""The organisers' list of submissions."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from server.deps import SessionDep
from server.web.deps import OrganiserPlaceDep
from server.web.failures import ADVICE
from server.web.organising import submissions_repository as repository
from server.web.organising.forms import moment
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
    text: Short = "",
    received_from: Short = "",
    received_before: Short = "",
    page_number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
) -> Response:
    filters = Filters(
        stage=stage,
        fault=fault,
        error_class=error_class,
        team=team.strip(),
        only=only,
        text=text.strip(),
        received_from=moment(received_from, field="received_from") if received_from else None,
        received_before=moment(received_before, field="received_before") if received_before else None,
    )
    given = {key: value for key, value in request.query_params.items() if value and key != "page"}
    lines = repository.listed(session, place.competition.id, filters, page=page_number)
    return page(
        request,
        "organise/submissions.html",
        place=place,
        room="submissions",
        filters=filters,
        given=given,
        query=urlencode(given),
        lines=lines[:LINES],
        has_more=len(lines) > LINES,
        page_number=page_number,
        error_classes=sorted({*ADVICE, "host-fault"}),
    )
