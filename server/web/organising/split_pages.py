"""The report of a prepared split: what lies in each set, and what sets share that they should not."""

from fastapi import Request, Response

from server.competitions import service as competitions
from server.deps import SessionDep, StorageDep
from server.models.competition import Visibility
from server.web.deps import OrganiserPlaceDep
from server.web.organising.split_report import report_of
from server.web.rendering import page
from server.web.routing import page_router

router = page_router()

SHARED = {
    "shared_images": "the same image",
    "shared_persons": "the same person",
    "exact_duplicates": "exact duplicates",
    "near_duplicates": "near-duplicates",
}


@router.get("/organise/{slug}/splits/{visibility}")
def split_page(
    visibility: Visibility, request: Request, session: SessionDep, place: OrganiserPlaceDep, storage: StorageDep
) -> Response:
    report = report_of(storage, place.competition.slug, visibility)
    return page(
        request,
        "organise/split.html",
        place=place,
        room="control",
        split=competitions.split_of(session, place.competition, visibility),
        report=report,
        shared=SHARED,
        most={name: max(counts.values(), default=0) for name, counts in report["classes"].items()} if report else {},
        overlaps=sum(pair[key] for pair in report["pairs"] for key in SHARED) if report else 0,
    )
