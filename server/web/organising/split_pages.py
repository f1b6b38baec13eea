"""The report of a prepared split: what lies in each set, and what sets share that they should not."""

import json
from typing import Any

from fastapi import Request, Response

from server.competitions import service as competitions
from server.deps import SessionDep, StorageDep
from server.errors import NotFound
from server.models.competition import Visibility
from server.storage import Storage
from server.web.deps import OrganiserPlaceDep
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
    report = _report(storage, place.competition.slug, visibility)
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


def _report(storage: Storage, slug: str, visibility: Visibility) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(storage.read(f"splits/{slug}/{visibility.value}/report.json"))
    except NotFound:
        return None
    return found
