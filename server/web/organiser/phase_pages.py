"""The phases of a competition, and submissions after its close, for organisers."""

from typing import Annotated, Any

from fastapi import Depends, Form, Request, Response

from lethe.competition.sections import MAX_PHASES
from lethe.errors import AppError
from server.admin.competition_edits import may_change
from server.web.page_router import page_router
from server.web.place_request import OrganiserDep, OrganiserRequest, change, timestamp

router = page_router()

FIELDS = ("name", "begins_at", "counts", "submissions_per_day", "submissions_total")
EMPTY_ROWS = 2
Short = Annotated[str, Form(max_length=500)]
Row = dict[str, str]


async def given_rows(request: Request) -> list[Row]:
    """Return the form's rows that name a phase, unchecked."""
    form = await request.form()
    rows = [
        {field: str(form.get(f"{field}-{number}", ""))[:60].strip() for field in FIELDS} for number in range(MAX_PHASES)
    ]
    return [row for row in rows if row["name"]]


@router.get("/organise/{slug}/phases")
def phases_page(asked: OrganiserDep) -> Response:
    return _page(asked, rows=_as_rows(asked), late=_late_as_text(asked))


@router.post("/organise/{slug}/phases")
def change_phases(
    asked: OrganiserDep,
    *,
    rows: Annotated[list[Row], Depends(given_rows)],
    accepted: bool = Form(default=False),
    until: Short = "",
    late_per_day: Short = "",
    reason: Short = "",
) -> Response:
    """Set the phases, and whether submissions are taken after the close."""
    late = {"until": until.strip(), "submissions_per_day": late_per_day.strip()}
    try:
        end = timestamp(until, field="until").isoformat() if late["until"] else None
        sections = {
            "phases": [_phase(row, is_first=number == 0) for number, row in enumerate(rows)],
            "late": {"accepted": accepted, "until": end, "submissions_per_day": late["submissions_per_day"] or None},
        }
        change(asked, sections, reason=reason)
    except AppError as error:
        return _page(asked, rows=rows, late=late | {"accepted": accepted}, error=error, reason=reason)
    return asked.done("The phases are changed.", to="/phases")


def _phase(row: Row, *, is_first: bool) -> dict[str, Any]:
    begin = None if is_first or not row["begins_at"] else timestamp(row["begins_at"], field="begins_at").isoformat()
    return {
        "name": row["name"],
        "begins_at": begin,
        "counts": row["counts"] == "true",
        "submissions_per_day": row["submissions_per_day"] or None,
        "submissions_total": row["submissions_total"] or None,
    }


def _as_rows(asked: OrganiserRequest) -> list[Row]:
    return [
        {
            "name": phase.name,
            "begins_at": phase.begins_at.strftime("%Y-%m-%dT%H:%M") if phase.begins_at else "",
            "counts": "true" if phase.counts else "",
            "submissions_per_day": str(phase.submissions_per_day or ""),
            "submissions_total": str(phase.submissions_total or ""),
        }
        for phase in asked.place.file.phases
    ]


def _late_as_text(asked: OrganiserRequest) -> dict[str, Any]:
    late = asked.place.file.late
    return {
        "accepted": late.accepted,
        "until": late.until.strftime("%Y-%m-%dT%H:%M") if late.until else "",
        "submissions_per_day": str(late.submissions_per_day or ""),
    }


def _page(asked: OrganiserRequest, *, rows: list[Row], late: dict[str, Any], **context: Any) -> Response:
    empty = dict.fromkeys(FIELDS, "") | {"counts": "true"}
    shown = {"error": None, "reason": "", **context}
    return asked.page(
        "phases.html",
        tab="control",
        rows=[*rows, *[empty] * min(EMPTY_ROWS, MAX_PHASES - len(rows))],
        late=late,
        may_change=may_change(asked.competition),
        **shown,
    )
