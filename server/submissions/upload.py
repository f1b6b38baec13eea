"""Receives a submission's file. The competition is open before the first byte of the body is read."""

from datetime import datetime

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from lethe.errors import InvalidSubmission, Violation
from server.db import now
from server.received_form import get_too_large, received_form
from server.submissions.upload_check import FILENAME_LENGTH, MESSAGE_LENGTH, Upload

MAX_REQUEST_BYTES = 2 << 30  # no competition's own limit goes beyond
WHAT = "A submission"


async def receive(request: Request, *, limit_mib: int) -> Upload:
    """Return the form's file and message. Raises TooLarge as soon as it is, UnsupportedMedia or InvalidSubmission."""
    async with received_form(request, limit_mib=limit_mib, what=WHAT, refusal=InvalidSubmission) as form:
        received_at = now()
        return await _upload(form, limit_mib=limit_mib, received_at=received_at)


async def _upload(form: FormData, *, limit_mib: int, received_at: datetime) -> Upload:
    file, message = form.get("file"), form.get("message") or ""
    if not isinstance(file, UploadFile):
        missing = "the field `file` is missing, is not a file, or was cut off"
        raise InvalidSubmission(f"The form is not whole: {missing}", violations=(Violation("file", missing),))
    if isinstance(message, UploadFile) or len(message) > MESSAGE_LENGTH:
        allowed = f"has at most {MESSAGE_LENGTH} characters of text"
        raise InvalidSubmission(f"The message {allowed}", violations=(Violation("message", allowed),))
    if file.size is not None and file.size > limit_mib << 20:
        raise get_too_large(WHAT, limit_mib)
    return Upload(
        filename=base_name(file.filename or ""),
        data=await file.read(),
        message=message,
        received_at=received_at,
        tasks=tasks_of(form),
    )


def tasks_of(form: FormData) -> tuple[str, ...]:
    """Return the tasks that a form names: one field for each, or several in one with commas between."""
    texts = [value for value in form.getlist("tasks") if isinstance(value, str)]
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def base_name(filename: str) -> str:
    """Return the last component of what a client calls its file, without what a terminal or header would obey."""
    base = filename.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c if c.isprintable() and c != '"' else "_" for c in base)[-FILENAME_LENGTH:] or "unnamed"
