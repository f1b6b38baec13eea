"""The report of a prepared split: what lies in each set, and what sets share that they should not."""

from fastapi import Request, Response

from lethe.competition.task import ImageClassification, Task
from lethe.competition.visibility import Visibility
from server.competitions import service as competitions
from server.competitions.split_report import find_split_report
from server.deps import SessionDep, StorageDep
from server.web.deps import OrganiserPlaceDep
from server.web.page_router import page_router
from server.web.rendering import page

router = page_router()


def name_shared(task: Task) -> dict[str, str]:
    """Return what sets can share, by the field of the report that counts it: near-duplicates for images alone."""
    shared = {
        "shared_images": f"the same {task.example}",
        "shared_persons": "the same person",
        "exact_duplicates": "exact duplicates",
    }
    return shared | {"near_duplicates": "near-duplicates"} if isinstance(task, ImageClassification) else shared


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
        example=place.file.task.example,
        shared=name_shared(place.file.task),
        most={name: max(counts.values(), default=0) for name, counts in report.classes.items()} if report else {},
        overlaps=sum(pair.overlaps for pair in report.pairs) if report else 0,
    )
