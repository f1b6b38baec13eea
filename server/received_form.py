"""Receives a form with a file: streamed, capped while it is read, whole or not at all.

The caller is known before the first byte of the body is read, and no transaction is open while it comes.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from lethe.errors import InvalidInput, Violation
from server.errors import TooLarge, UnsupportedMedia

FORM = "multipart/form-data"
OVERHEAD_BYTES = 16 << 10  # of a form around its file


class _Parser(MultiPartParser):
    """Starlette's parser hands out only files that ended; one that was cut off has to be closed as well."""

    def close_files(self) -> None:
        for file in self._files_to_close_on_error:
            file.close()


@asynccontextmanager
async def received_form(
    request: Request, *, limit_mib: int, what: str, refusal: type[InvalidInput], max_text_bytes: int = 0
) -> AsyncIterator[FormData]:
    """Yield the form and close it. what, max_text_bytes: of the limit. Raises TooLarge, UnsupportedMedia, refusal."""
    if not request.headers.get("content-type", "").lower().startswith(FORM):
        raise UnsupportedMedia(f"Send the file as {FORM}, in the field `file`")
    max_bytes = (limit_mib << 20) + max_text_bytes + OVERHEAD_BYTES
    stream = _capped(request, max_bytes=max_bytes, too_large=get_too_large(what, limit_mib))
    parser = _Parser(request.headers, stream, max_files=1, max_fields=8, max_part_size=max_text_bytes + OVERHEAD_BYTES)
    try:
        yield await _parsed(parser, refusal)
    finally:
        parser.close_files()


async def _parsed(parser: _Parser, refusal: type[InvalidInput]) -> FormData:
    try:
        return await parser.parse()
    except ClientDisconnect as error:
        raise refusal("The connection ended before the file did; nothing of it was kept") from error
    except MultiPartException as error:
        raise refusal(
            f"The form cannot be read: {error.message}", violations=(Violation("file", error.message),)
        ) from error


def text_field(form: FormData, name: str) -> str:
    """Return the text of a field; empty where there is none, or a file."""
    value = form.get(name)
    return value if isinstance(value, str) else ""


def get_too_large(what: str, limit_mib: int) -> TooLarge:
    """Return the refusal of a file beyond its limit."""
    return TooLarge(f"{what} has at most {limit_mib} MiB", violations=(Violation("file", "is too large"),))


async def _capped(request: Request, *, max_bytes: int, too_large: TooLarge) -> AsyncGenerator[bytes, None]:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > max_bytes:
            raise too_large
        yield chunk
