"""The organisers' list of submissions."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Response

from lethe.metrics.scoring.attacks.family import HONEST_DISAGREEMENT
from lethe.runtime.error_classes import ErrorClass
from server.submissions.list_filter import SubmissionFilter
from server.submissions.organiser_list import find_lines
from server.web.organiser.forms import timestamp
from server.web.page_router import page_router
from server.web.place_request import OrganiserDep

router = page_router()

Short = Annotated[str, Query(max_length=60)]


@router.get("/organise/{slug}/submissions")
def submissions_page(
    asked: OrganiserDep,
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
    filters = SubmissionFilter(
        stage=stage,
        fault=fault,
        error_class=error_class,
        team=team.strip(),
        only=only,
        text=text.strip(),
        received_from=timestamp(received_from, field="received_from") if received_from else None,
        received_before=timestamp(received_before, field="received_before") if received_before else None,
    )
    given = {key: value for key, value in asked.request.query_params.items() if value and key != "page"}
    found = find_lines(asked.session, asked.competition, filters, page=page_number)
    return asked.page(
        "submissions.html",
        tab="submissions",
        filters=filters,
        given=given,
        query=urlencode(given),
        lines=found.lines,
        has_more=found.has_more,
        page_number=page_number,
        honest_disagreement=HONEST_DISAGREEMENT,
        error_classes=sorted(ErrorClass),
    )
