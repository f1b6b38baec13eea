"""Changing a competition: the file of a draft; the words, and the limits with whom they affect, of one that runs."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Form, Request, Response

from lethe.competition.sections import Limits
from lethe.errors import AppError
from server.admin import competition_edits
from server.admin.competition_edits import Change
from server.competitions import competitions
from server.errors import Conflict
from server.web.competition_pages import competition_timeline
from server.web.organiser import file_editor
from server.web.page_router import page_router
from server.web.place_request import OrganiserDep, OrganiserRequest, change

router = page_router()

LongText = Annotated[str, Form(max_length=100_000)]
Short = Annotated[str, Form(max_length=500)]


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
        file = change(asked, {"file": text}, act=act).after
    except AppError as error:
        return _edit(asked, text=text, error=error)
    if act == "preview":
        return _edit(asked, text=text, preview=file, timeline=competition_timeline(file))
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
        found = change(asked, {"limits": values}, act=act, reason=reason)
    except AppError as error:
        return _limits(asked, values=given, error=error, reason=reason)
    if act == "preview":
        return _limits(asked, values=given, change=found, reason=reason)
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
    shown = {"error": None, "preview": None, "timeline": None, **context}
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
