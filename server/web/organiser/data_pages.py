"""A new competition: from an example or a file, or from an organiser's own images, with a form; its preview, the
draft."""

from typing import Annotated, Any

from fastapi import Depends, File, Form, Query, Request, Response, UploadFile
from starlette.datastructures import FormData

from lethe.competition.sections import UPLOAD
from lethe.errors import AppError, InvalidInput, NotFound
from lethe.text_files import decode_text
from server.competitions import competitions
from server.competitions.stored_file import read_file
from server.datasets import datasets
from server.db import now
from server.deps import SessionDep, SettingsDep, StorageDep
from server.web.competition_pages import STARTER_TOML, competition_timeline
from server.web.cookies import Flash
from server.web.deps import StaffDep, require_staff
from server.web.organiser import data_form, file_editor
from server.web.page_router import page_router
from server.web.rendering import page, part, redirect

router = page_router()

MAX_LENGTH = 100_000
LongText = Annotated[str, Form(max_length=MAX_LENGTH)]
Act = Annotated[str, Form(max_length=20)]
FileName = Annotated[str, Query(max_length=60)]
ADDRESS = "/organise/new/data"
MAX_WORD_LENGTH = 100
Name = Annotated[str, Query(max_length=64)]


async def given_form(request: Request) -> dict[str, str]:
    """Return the form's texts, unchecked."""
    return {name: value for name, value in (await request.form()).items() if isinstance(value, str)}


def asked_reading(request: Request) -> dict[str, str]:
    """Return how the address says that a dataset is read."""
    return {field.name: request.query_params.get(field.name, "")[:MAX_WORD_LENGTH] for field in data_form.READING}


ReadAs = Annotated[dict[str, str], Depends(asked_reading)]
Given = Annotated[dict[str, str], Depends(given_form)]


@router.get(ADDRESS)
def data_page(
    request: Request,
    session: SessionDep,
    settings: SettingsDep,
    storage: StorageDep,
    *,
    viewer: StaffDep,
    read_as: ReadAs,
    dataset: Name = "",
) -> Response:
    """Show the organiser's datasets; with one of them what it holds, and the form with what is proposed for it."""
    there = datasets.list_datasets(session, viewer)
    shown = {"datasets": there, "settings": settings, "dataset": dataset, "read_as": read_as}
    if not dataset:
        return _page(request, **shown)
    stored = datasets.get_usable(session, dataset, actor=viewer)
    try:
        made = datasets.propose(storage, settings, stored, at=now(), read_as=data_form.read_as(read_as))
    except AppError as error:
        return _page(request, **{**shown, "dataset": "", "chosen": dataset}, error=error)
    return _page(request, **shown, made=made, values=data_form.shown_values(made["values"]))


@router.post(ADDRESS)
def create(
    request: Request, session: SessionDep, settings: SettingsDep, storage: StorageDep, *, viewer: StaffDep, given: Given
) -> Response:
    """Show the cut with pictures and the cost of what the form says, or make a draft of it."""
    dataset = given.get("dataset", "")
    stored = datasets.get_usable(session, dataset, actor=viewer)
    shown = {"datasets": [], "settings": settings, "dataset": dataset, "values": given}
    try:
        values = data_form.as_values(given, root=f"{UPLOAD}{dataset}")
        text = data_form.as_text(given, root=f"{UPLOAD}{dataset}")
        read_file(text)
        if given.get("act") != "create":
            made = datasets.propose(storage, settings, stored, at=now(), given=values)
            return _page(request, **shown, made=made, is_asked=True)
        competition = competitions.create(session, text, organiser=viewer)
    except AppError as error:
        return _page(request, **shown, error=error)
    session.flush()
    done = Flash("good", "The draft is made. Only its organisers see it.")
    return redirect(request, f"/organise/{competition.slug}", flash=done)


@router.post(f"{ADDRESS}/check", dependencies=[Depends(require_staff)])
def check_form(request: Request, given: Given) -> Response:
    """Answer with what is wrong with the form while it is filled in."""
    wrong: AppError | None = None
    try:
        read_file(data_form.as_text(given, root=f"{UPLOAD}{given.get('dataset', '')}"))
    except AppError as error:
        wrong = error
    errors = data_form.errors_of(wrong)
    return part(request, "organise/_data_check.html", error=wrong, errors=errors, fields=_labels())


@router.post("/organise/new/check", dependencies=[Depends(require_staff)])
def check_file(request: Request, *, text: LongText = "") -> Response:
    """Answer with what is wrong with a competition file while it is written."""
    text = text.replace("\r\n", "\n")
    try:
        read_file(text)
    except AppError as error:
        return part(request, "organise/_file_check.html", error=error, mistakes=file_editor.mistakes(error, text))
    return part(request, "organise/_file_check.html", error=None, mistakes=[])


def _labels() -> dict[str, data_form.Field]:
    return {field.name: field for field in data_form.FIELDS}


def _page(request: Request, **context: Any) -> Response:
    shown = {"error": None, "made": None, "values": {}, "is_asked": False, "read_as": {}, "chosen": "", **context}
    return page(
        request,
        "organise/new_from_data.html",
        groups=data_form.GROUPS,
        reading=data_form.READING,
        fields=_labels(),
        errors=data_form.errors_of(shown["error"]),
        **shown,
    )


@router.get("/organise/new", dependencies=[Depends(require_staff)])
def new_page(request: Request, *, template: FileName = "") -> Response:
    chosen = file_editor.get_template(template)
    if template and chosen is None:
        raise NotFound(f"There is no example called {template!r}")
    return _shown(
        request,
        chosen.text if chosen else STARTER_TOML.read_text(encoding="utf-8"),
        chosen=chosen.title if chosen else "",
    )


async def changed_fields(request: Request) -> dict[str, str]:
    """Return what was changed in the form's own fields since it was shown."""
    form: FormData = await request.form()
    given = {name: str(form.get(f"set_{name}", ""))[:500] for name, *_ in file_editor.FIELDS}
    return {name: value for name, value in given.items() if value != form.get(f"was_{name}", "")}


@router.post("/organise/new")
def create_from_file(
    request: Request,
    session: SessionDep,
    viewer: StaffDep,
    *,
    text: LongText = "",
    act: Act = "preview",
    upload: Annotated[UploadFile | None, File()] = None,
    changed: Annotated[dict[str, str], Depends(changed_fields)],
) -> Response:
    """Check a competition file and show what participants will see, or make a draft of it."""
    text = text.replace("\r\n", "\n")
    try:
        text = _uploaded(upload) or text
        text = file_editor.with_fields(text, changed) if changed else text
        file = read_file(text)
        if act == "preview":
            return _shown(
                request, text, preview=file, timeline=competition_timeline(file), cost=file_editor.estimate_cost(file)
            )
        competition = competitions.create(session, text, organiser=viewer)
    except AppError as error:
        return _shown(request, text, error=error)
    session.flush()
    done = Flash("good", "The draft is made. Only its organisers see it.")
    return redirect(request, f"/organise/{competition.slug}", flash=done)


def _uploaded(upload: UploadFile | None) -> str:
    """Return the text of the chosen file; nothing if none was. Raises InvalidInput."""
    if upload is None or not upload.filename:
        return ""
    data = upload.file.read(MAX_LENGTH + 1)
    if len(data) > MAX_LENGTH:
        raise InvalidInput(f"A competition file holds {MAX_LENGTH:,} bytes at most")
    try:
        return decode_text(data)
    except ValueError as error:
        raise InvalidInput(f"The file cannot be read: {error}") from error


def _shown(request: Request, text: str, **context: Any) -> Response:
    shown = {"error": None, "preview": None, "timeline": None, "cost": None, "chosen": "", **context}
    return page(
        request,
        "organise/new.html",
        text=text,
        templates=file_editor.templates(),
        fields=file_editor.FIELDS,
        values=file_editor.field_values(text),
        mistakes=file_editor.mistakes(shown["error"], text),
        **shown,
    )
