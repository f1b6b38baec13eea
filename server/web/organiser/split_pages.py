"""The report of a prepared split: what lies in each set, and what sets share that they should not."""

from typing import Annotated

from fastapi import Form, Response

from lethe.competition.task import ImageClassification, Task
from lethe.competition.visibility import Visibility
from server.competitions import service as competitions
from server.competitions import split_replacement
from server.competitions.split_report import find_split_report
from server.deps import StorageDep
from server.web.organiser.forms import needed
from server.web.page_router import page_router
from server.web.place_request import OrganiserDep

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
def split_page(visibility: Visibility, storage: StorageDep, asked: OrganiserDep) -> Response:
    split = competitions.get_split(asked.session, asked.competition, visibility)
    report = find_split_report(storage, asked.competition, split)
    return asked.page(
        "split.html",
        tab="control",
        split=split,
        replacement=split_replacement.find(asked.session, asked.competition, visibility),
        may_replace=split_replacement.may_replace(asked.competition),
        report=report,
        example=asked.place.file.task.example,
        shared=name_shared(asked.place.file.task),
        most={name: max(counts.values(), default=0) for name, counts in report.classes.items()} if report else {},
        overlaps=sum(pair.overlaps for pair in report.pairs) if report else 0,
    )


@router.post("/organise/{slug}/splits/{visibility}/replace")
def replace_split(
    visibility: Visibility, asked: OrganiserDep, *, reason: Annotated[str, Form(max_length=500)] = ""
) -> Response:
    """Prepare another version of the split from the data as it is now."""
    split_replacement.replace(asked.session, asked.competition, visibility, actor=asked.viewer, reason=needed(reason))
    return asked.done(f"Another version of the {visibility} split is being prepared.", to=f"/splits/{visibility}")
