"""The page that takes a submission: a file, or code pasted into a field."""

from dataclasses import dataclass, replace
from datetime import datetime

from fastapi import Request, Response, status
from sqlalchemy.orm import Session
from starlette.datastructures import FormData, UploadFile

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.errors import AppError, InvalidSubmission, Violation
from lethe.submission.archive import SOURCE_MIB
from server.admission import AdmissionDep
from server.competitions import competitions, lifecycle, participation
from server.competitions.stored_file import stored_file
from server.db import now
from server.deps import SessionDep, SettingsDep, StorageDep, UnadmittedDatabase
from server.errors import Conflict, NotAllowed, NotAuthenticated, Overloaded, QuotaExceeded
from server.models.account import Account
from server.models.competition import CompetitionState
from server.received_form import get_too_large, received_form, text_field
from server.submissions import submissions, upload_check
from server.submissions.upload_check import (
    MAX_REQUEST_BYTES,
    MESSAGE_LENGTH,
    WHAT,
    CheckedUpload,
    Upload,
    base_name,
    check_for,
    store_again_if_collected,
    tasks_of,
)
from server.web.competition_pages import limit_of_a_run
from server.web.cookies import FIELD, Flash, check_origin, check_token
from server.web.deps import MemberDep, Place, PlaceDep, find_place, get_viewer
from server.web.failure_messages import ExcerptLine, excerpt
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router(checks_csrf=False)  # the upload checks its own token, after the size and before the file

PASTED_NAME = "submission.py"
MAX_PASTE_BYTES = SOURCE_MIB << 20
NOT_OPENED = (CompetitionState.DRAFT, CompetitionState.PREPARING, CompetitionState.READY)


@dataclass(frozen=True)
class SubmittedForm:
    """The fields of the form."""

    file: Upload | None
    code: str
    message: str
    tasks: tuple[str, ...] = ()


@router.get("/competitions/{slug}/submit")
def submit_page(request: Request, session: SessionDep, place: PlaceDep, viewer: MemberDep) -> Response:
    if place.whole is not None:
        return redirect(request, f"/competitions/{place.whole.slug}/submit")
    at = now()
    quota = submissions.quota_of_team(session, place.competition, place.team, at=at)
    used_up, barred = False, ""
    try:
        submissions.check_may_submit(session, place.competition, viewer, at=at)
    except NotAllowed as error:
        barred = error.detail
    except QuotaExceeded:
        used_up = True
    except Conflict:
        pass  # the page itself says that submissions are closed
    return _form(request, session, place, quota=quota, used_up=used_up, barred=barred)


@router.post("/competitions/{slug}/submit", max_body_size=MAX_REQUEST_BYTES)
async def submit(
    slug: str,
    request: Request,
    *,
    admission: AdmissionDep,
    database: UnadmittedDatabase,
    storage: StorageDep,
    settings: SettingsDep,
) -> Response:
    """Take a submission, or show the page again with what is wrong with it."""
    check_origin(request)
    viewer, file = await admission.read(database, _admit, slug, request)
    upload_check.take(settings, viewer.id)
    async with received_form(
        request, limit_mib=file.limits.upload_mib, max_text_bytes=MAX_PASTE_BYTES, what=WHAT, refusal=InvalidSubmission
    ) as form:
        sent = await _read(form)
        given = text_field(form, FIELD)
    try:
        check_token(request, given)
        upload = _form_upload(sent, limit_mib=file.limits.upload_mib)
        checked = await check_for(storage, upload, account_id=viewer.id, file=file)
        submission_id = await admission.write(database, _accept, request, slug=slug, checked=checked)
        await admission.long_work(store_again_if_collected, storage, checked)
    except (NotAuthenticated, Overloaded):
        raise
    except AppError as error:
        return await admission.read(database, _refused, request, slug=slug, viewer=viewer, sent=sent, error=error)
    taken = redirect(request, f"/submissions/{submission_id}", flash=Flash("good", "Received, checked and queued."))
    if request.headers.get("X-Requested-With") == "fetch":  # a script would follow a redirect, and use the message up
        taken.status_code = status.HTTP_204_NO_CONTENT
    return taken


def _admit(session: Session, slug: str, request: Request) -> tuple[Account, CompetitionFile]:
    """Return who sends, and to what, before anything of the body is read."""
    viewer = _sender(session, request)
    competition = competitions.get(session, slug, account=viewer)
    participation.check_may_take_part(session, competition, viewer)
    return viewer, stored_file(competition)


def _sender(session: Session, request: Request) -> Account:
    viewer = get_viewer(request, session)
    if viewer is None:
        raise NotAuthenticated("Log in to send a submission")
    return viewer


async def _read(form: FormData) -> SubmittedForm:
    file = form.get("file")
    message, code = (text_field(form, name) for name in ("message", "code"))
    received = None
    if isinstance(file, UploadFile) and file.filename:
        received = Upload(filename=base_name(file.filename), data=await file.read(), message=message, received_at=now())
    return SubmittedForm(received, code, message, tasks_of(form))


def _accept(session: Session, request: Request, *, slug: str, checked: CheckedUpload) -> str:
    """Queue the submission. Return its id."""
    viewer = _sender(session, request)  # who may have been banned, or have gone, while the file came
    competition = competitions.get(session, slug, account=viewer)
    return submissions.accept(session, competition, viewer, checked).submission.id


def _form_upload(sent: SubmittedForm, *, limit_mib: int) -> Upload:
    upload = replace(sent.file or _pasted(sent), tasks=sent.tasks)
    if len(upload.data) > limit_mib << 20:
        raise get_too_large(WHAT, limit_mib)
    return upload


def _pasted(sent: SubmittedForm) -> Upload:
    if not sent.code.strip():
        nothing = "choose a file, or paste code"
        raise InvalidSubmission("Nothing was sent", violations=(Violation("file", nothing),))
    code = sent.code.replace("\r\n", "\n").encode()
    return Upload(filename=PASTED_NAME, data=code, message=sent.message[:MESSAGE_LENGTH], received_at=now())


def _refused(
    session: Session, request: Request, *, slug: str, viewer: Account, sent: SubmittedForm, error: AppError
) -> Response:
    place = find_place(session, competitions.get(session, slug, account=viewer), viewer)
    quota = submissions.quota_of_team(session, place.competition, place.team, at=now())
    return _form(request, session, place, quota=quota, error=error, sent=sent)


def _form(
    request: Request,
    session: Session,
    place: Place,
    *,
    quota: object,
    used_up: bool = False,
    barred: str = "",
    error: AppError | None = None,
    sent: SubmittedForm | None = None,
) -> Response:
    split = competitions.find_split(session, place.competition, Visibility.PUBLIC)
    return page(
        request,
        "submit.html",
        place=place,
        run_limit=limit_of_a_run(place.file, split) if split and not place.tasks else None,
        tab="submit",
        quota=quota,
        limits=place.file.limits,
        source_mib=min(SOURCE_MIB, place.file.limits.upload_mib),
        used_up=used_up,
        barred=barred,
        closed=_closed(place, at=now()),
        period=lifecycle.shown_period(place.competition, place.team, now()),
        error=error,
        excerpt=_lines_at_fault(error, sent) if error and sent else (),
        code=sent.code if sent else "",
        message=sent.message if sent else "",
        sent_tasks=sent.tasks if sent else (),
    )


def _closed(place: Place, *, at: datetime) -> str:
    """Return why nothing is taken now: `early`, `over`, or nothing if something is."""
    competition = place.competition
    if lifecycle.period_at(competition, place.team, at) is not None:
        return ""
    return "early" if at < competition.opens_at or competition.state in NOT_OPENED else "over"


def _lines_at_fault(error: AppError, sent: SubmittedForm) -> tuple[ExcerptLine, ...]:
    line = next((violation.line for violation in error.violations if violation.line), None)
    if line is None or (sent.file is not None and not sent.file.filename.endswith(".py")):
        return ()
    return excerpt(sent.file.data.decode("utf-8", "replace") if sent.file else sent.code, line)
