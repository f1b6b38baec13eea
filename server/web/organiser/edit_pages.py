"""Changing a competition: the file of a draft; the words, the phases, and the limits with whom they affect, of one
that runs."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Form, Request, Response

from lethe.competition.sections import MAX_PHASES, Limits
from lethe.errors import AppError
from server.admin import competition_edits
from server.admin.competition_edits import Change
from server.competitions import competitions
from server.errors import Conflict
from server.web.competition_pages import competition_timeline
from server.web.deps import OrganiserDep, OrganiserRequest, change, timestamp
from server.web.organiser import file_editor
from server.web.page_router import page_router

router = page_router()

LongText = Annotated[str, Form(max_length=100_000)]
Short = Annotated[str, Form(max_length=500)]
PHASE_FIELDS = ("name", "begins_at", "counts", "submissions_per_day", "submissions_total")
EMPTY_ROWS = 2
Row = dict[str, str]


@dataclass(frozen=True)
class LimitField:
    """One limit in the form. choices: the values that there are, where it is not a number."""

    name: str
    label: str
    unit: str
    hint: str
    optional: bool
    choices: tuple[str, ...] = ()


LABELS = {  # label, unit
    "submissions_per_day": ("Submissions of a team per day", ""),
    "submissions_total": ("Submissions of a team in total", ""),
    "final_selections": ("Finals that a team chooses", ""),
    "team_size": ("People in a team", ""),
    "upload_mib": ("Size of an upload", "MiB"),
    "wall_time_s": ("Time of all runs", "seconds"),
    "run_wall_time_s": ("Time of one run", "seconds"),
    "run_fraction_of_retraining": ("Time of one run, as a share of one retraining", "0 to 1"),
    "run_start_time_s": ("Processor time of a run for starting", "seconds"),
    "run_wall_time_floor_s": ("Time that a run has at least", "seconds"),
    "run_cpu_time_s": ("Processor time of one run", "seconds"),
    "run_idle_time_s": ("Time without using a processor", "seconds"),
    "isolation": ("Processes on a GPU", ""),
    "memory_mib": ("Memory of a run", "MiB"),
    "processes": ("Processes of a run", ""),
    "scratch_mib": ("Scratch folder of a run", "MiB"),
    "log_kib": ("Output that is kept", "KiB"),
    "leak_bits_per_day": ("What failures may reveal per day", "bits"),
}


def _field(name: str) -> LimitField:
    info = Limits.model_fields[name]
    kinds = getattr(info.annotation, "__args__", ())
    label, unit = LABELS.get(name, (name.replace("_", " ").capitalize(), ""))
    choices = tuple(kind for kind in kinds if isinstance(kind, str))
    return LimitField(name, label, unit, info.description or "", optional=type(None) in kinds, choices=choices)


FIELDS = tuple(
    sorted(
        (_field(name) for name in Limits.model_fields),
        key=lambda field: list(LABELS).index(field.name) if field.name in LABELS else len(LABELS),
    )
)


@router.get("/organise/{slug}/edit")
def edit_page(asked: OrganiserDep) -> Response:
    competition = asked.competition
    if not competition_edits.may_replace_file(competition, list(competitions.splits(asked.session, competition))):
        raise Conflict(
            f"{competition.slug} is {competition.state}: its splits are made from its file, "
            "which can no longer be replaced. Limits, the end and announcements can be changed"
        )
    return _edit(asked, text=competition.source)


@router.post("/organise/{slug}/edit")
def edit(asked: OrganiserDep, *, text: LongText = "", act: Short = "preview") -> Response:
    """Check the file and show what participants will see, or put it in the place of the present one."""
    text = text.replace("\r\n", "\n")
    try:
        changed = change(asked, {"file": text}, act=act)
    except AppError as error:
        return _edit(asked, text=text, error=error)
    if act == "preview":
        return _edit(
            asked, text=text, preview=changed.after, change=changed, timeline=competition_timeline(changed.after)
        )
    return asked.done("The file is replaced.")


@router.get("/organise/{slug}/limits")
def limits_page(asked: OrganiserDep) -> Response:
    return _limits(asked, values=_as_text(asked.place.file.limits))


async def given_limits(request: Request) -> dict[str, str]:
    """Return what the form says of each limit, unchecked."""
    form = await request.form()
    return {field.name: str(form.get(field.name, ""))[:40].strip() for field in FIELDS}


@router.post("/organise/{slug}/limits")
def change_limits(
    asked: OrganiserDep,
    *,
    given: Annotated[dict[str, str], Depends(given_limits)],
    act: Short = "preview",
    reason: Short = "",
) -> Response:
    """Show whom other limits would affect, or set them. An empty field means no limit."""
    values = {name: value or None for name, value in given.items()}
    try:
        changed = change(asked, {"limits": values}, act=act, reason=reason)
    except AppError as error:
        return _limits(asked, values=given, error=error, reason=reason)
    if act == "preview":
        return _limits(asked, values=given, change=changed, reason=reason)
    return asked.done("The limits are changed.")


@router.get("/organise/{slug}/words")
def words_page(asked: OrganiserDep) -> Response:
    file = asked.place.file
    return _words(asked, {"title": file.title, "summary": file.summary, "description": file.description})


@router.post("/organise/{slug}/words")
def change_words(
    asked: OrganiserDep,
    *,
    title: Short = "",
    summary: Annotated[str, Form(max_length=2000)] = "",
    description: LongText = "",
    act: Short = "preview",
    reason: Short = "",
) -> Response:
    """Show another description as participants will see it, or publish it."""
    words = {"title": title.strip(), "summary": summary.strip(), "description": description.replace("\r\n", "\n")}
    try:
        file = change(asked, words, act=act, reason=reason).after
    except AppError as error:
        return _words(asked, words, reason=reason, error=error)
    if act == "preview":
        return _words(asked, words, reason=reason, preview=file, timeline=competition_timeline(file))
    return asked.done("The description is changed.")


def _words(asked: OrganiserRequest, words: dict[str, str], *, reason: str = "", **context: Any) -> Response:
    shown = {"error": None, "preview": None, "change": None, "timeline": None, **context}
    return asked.page("description.html", tab="control", words=words, reason=reason, **shown)


def _edit(asked: OrganiserRequest, *, text: str, **context: Any) -> Response:
    shown = {"error": None, "preview": None, "timeline": None, **context}
    shown |= {
        "mistakes": file_editor.mistakes(shown["error"], text),
        "cost": file_editor.estimate_cost(shown["preview"]) if shown["preview"] else None,
    }
    return asked.page("edit.html", tab="control", text=text, **shown)


def _limits(
    asked: OrganiserRequest,
    *,
    values: dict[str, str],
    change: Change | None = None,
    error: AppError | None = None,
    reason: str = "",
) -> Response:
    wrong = (
        {violation.field.removeprefix("limits."): violation.message for violation in error.violations} if error else {}
    )
    return asked.page(
        "limits.html",
        tab="control",
        fields=FIELDS,
        labels={f"limits.{field.name}": field.label for field in FIELDS},
        values=values,
        change=change,
        error=error,
        wrong=wrong,
        reason=reason,
        changeable=competition_edits.may_change(asked.competition),
    )


def _as_text(limits: Limits) -> dict[str, str]:
    return {
        name: "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in limits.model_dump().items()
    }


async def given_rows(request: Request) -> list[Row]:
    """Return the form's rows that name a phase, unchecked."""
    form = await request.form()
    rows = [
        {field: str(form.get(f"{field}-{number}", ""))[:60].strip() for field in PHASE_FIELDS}
        for number in range(MAX_PHASES)
    ]
    return [row for row in rows if row["name"]]


@router.get("/organise/{slug}/phases")
def phases_page(asked: OrganiserDep) -> Response:
    return _phases(asked, rows=_as_rows(asked), late=_late_as_text(asked))


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
        return _phases(asked, rows=rows, late=late | {"accepted": accepted}, error=error, reason=reason)
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


def _phases(asked: OrganiserRequest, *, rows: list[Row], late: dict[str, Any], **context: Any) -> Response:
    empty = dict.fromkeys(PHASE_FIELDS, "") | {"counts": "true"}
    shown = {"error": None, "reason": "", **context}
    return asked.page(
        "phases.html",
        tab="control",
        rows=[*rows, *[empty] * min(EMPTY_ROWS, MAX_PHASES - len(rows))],
        late=late,
        may_change=competition_edits.may_change(asked.competition),
        **shown,
    )
