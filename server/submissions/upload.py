"""Receives a submission's file: streamed, capped while it is read, whole or not at all.

The caller is known and the competition open before the first byte of the body is read, and no transaction is open
while it comes.
"""

from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import datetime

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from lethe.errors import InvalidSubmission, TooLarge, UnsupportedMedia, Violation
from server.db import now
from server.submissions.upload_check import FILENAME_LENGTH, MESSAGE_LENGTH, Upload

FORM = "multipart/form-data"
OVERHEAD_BYTES = 16 << 10  # of a form around its file
MAX_REQUEST_BYTES = 2 << 30  # no competition's own limit goes beyond


class _Parser(MultiPartParser):
    """Starlette's parser hands out only files that ended; one that was cut off has to be closed as well."""

    def close_files(self) -> None:
        for file in self._files_to_close_on_error:
            file.close()


async def receive(request: Request, *, limit_mib: int) -> Upload:
    """Return the form's file and message. Raises TooLarge as soon as it is, UnsupportedMedia or InvalidSubmission."""
    if not request.headers.get("content-type", "").lower().startswith(FORM):
        raise UnsupportedMedia(f"Send the file as {FORM}, in the field `file`")
    _check_announced(request, limit_mib=limit_mib)
    stream = _capped(request, limit_mib=limit_mib)
    parser = _Parser(request.headers, stream, max_files=1, max_fields=8, max_part_size=OVERHEAD_BYTES)
    try:
        form = await parser.parse()
    except ClientDisconnect as error:
        raise InvalidSubmission("The connection ended before the file did; nothing of it was kept") from error
    except MultiPartException as error:
        raise InvalidSubmission(
            f"The form cannot be read: {error.message}", violations=(Violation("file", error.message),)
        ) from error
    received_at = now()
    try:
        return await _upload(form, limit_mib=limit_mib, received_at=received_at)
    finally:
        parser.close_files()


def _check_announced(request: Request, *, limit_mib: int) -> None:
    with suppress(ValueError):
        if int(request.headers.get("content-length", "0")) > (limit_mib << 20) + OVERHEAD_BYTES:
            raise _too_large(limit_mib)


async def _capped(request: Request, *, limit_mib: int) -> AsyncGenerator[bytes, None]:
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > (limit_mib << 20) + OVERHEAD_BYTES:
            raise _too_large(limit_mib)
        yield chunk


async def _upload(form: FormData, *, limit_mib: int, received_at: datetime) -> Upload:
    file, message = form.get("file"), form.get("message") or ""
    if not isinstance(file, UploadFile):
        missing = "the field `file` is missing, is not a file, or was cut off"
        raise InvalidSubmission(f"The form is not whole: {missing}", violations=(Violation("file", missing),))
    if isinstance(message, UploadFile) or len(message) > MESSAGE_LENGTH:
        allowed = f"has at most {MESSAGE_LENGTH} characters of text"
        raise InvalidSubmission(f"The message {allowed}", violations=(Violation("message", allowed),))
    if file.size is not None and file.size > limit_mib << 20:
        raise _too_large(limit_mib)
    return Upload(
        filename=_base_name(file.filename or ""), data=await file.read(), message=message, received_at=received_at
    )


def _base_name(filename: str) -> str:
    """Return the last component of what a client calls its file, without what a terminal or header would obey."""
    base = filename.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c if c.isprintable() and c != '"' else "_" for c in base)[-FILENAME_LENGTH:] or "unnamed"


def _too_large(limit_mib: int) -> TooLarge:
    return TooLarge(f"A submission has at most {limit_mib} MiB", violations=(Violation("file", "is too large"),))
