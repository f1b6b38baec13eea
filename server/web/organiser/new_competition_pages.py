"""A new competition: an example to begin with, a form for what is its own, the file, its preview, the draft."""

from typing import Annotated, Any

from fastapi import Depends, File, Form, Query, Request, Response, UploadFile
from starlette.datastructures import FormData

from lethe.errors import AppError, InvalidInput, NotFound
from lethe.text_files import decode_text
from server.competitions import competitions
from server.competitions.stored_file import read_file
from server.deps import SessionDep
from server.web.competition_pages import STARTER_TOML, competition_timeline
from server.web.cookies import Flash
from server.web.deps import StaffDep, require_staff
from server.web.organiser import file_editor
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()

MAX_LENGTH = 100_000
LongText = Annotated[str, Form(max_length=MAX_LENGTH)]
Act = Annotated[str, Form(max_length=20)]
Name = Annotated[str, Query(max_length=60)]


@router.get("/organise/new", dependencies=[Depends(require_staff)])
def new_page(request: Request, *, template: Name = "") -> Response:
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
def create(
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
                request,
                text,
                preview=file,
                timeline=competition_timeline(file),
                cost=file_editor.estimate_cost(file),
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
