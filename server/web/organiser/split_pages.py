"""The report of a prepared split: what lies in each set, and what sets share that they should not."""

from fastapi import Request, Response

from lethe.competition.visibility import Visibility
from server.competitions import service as competitions
from server.competitions.split_report import find_split_report
from server.deps import SessionDep, StorageDep
from server.web.deps import OrganiserPlaceDep
from server.web.page_router import page_router
from server.web.rendering import page

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
    report = find_split_report(storage, place.competition, visibility)
    return page(
        request,
        "organise/split.html",
        place=place,
        tab="control",
        split=competitions.get_split(session, place.competition, visibility),
        report=report,
        shared=SHARED,
        most={name: max(counts.values(), default=0) for name, counts in report.classes.items()} if report else {},
        overlaps=sum(pair.overlaps for pair in report.pairs) if report else 0,
    )
