"""Live parts of pages as server-sent events. A stream ends when nothing more will change, or after a while: the
browser then connects again, so that no connection holds up a restart for long. Without a stream the page polls.

Between two looks a stream holds neither a connection to the database nor a thread.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from server.admission import Admission, Shares
from server.middleware import get_client_address

POLL_INTERVAL_S = 1.0
MAX_STREAM_S = 60.0
SPREAD = 0.25  # of the longest time, so that streams that began together do not end together
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class Frame:
    """The current state of a part of a page. is_last: no update follows."""

    html: str
    is_last: bool


class _CountedStream(StreamingResponse):
    """A stream that counts against the limits per reader and in total while it is open."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        streams: Shares = request.app.state.streams
        viewer = getattr(request.state, "viewer", None)
        owner = viewer.id if viewer else get_client_address(request)
        if refusal := streams.find_refusal(owner):
            raise refusal
        streams.take(owner)
        try:
            await super().__call__(scope, receive, send)
        finally:
            streams.give_back(owner)


def stream(request: Request, look: Callable[[], Frame]) -> StreamingResponse:
    """Stream what `look` returns, in its own session once a second, when it changes; 429 or 503 if too many."""
    return _CountedStream(_events(request, look), media_type="text/event-stream", headers=HEADERS)


async def _events(request: Request, look: Callable[[], Frame]) -> AsyncIterator[bytes]:
    shown = ""
    admission: Admission = request.app.state.admission
    until = time.monotonic() + MAX_STREAM_S * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311 (spreads ends)
    while time.monotonic() < until:
        if await request.is_disconnected():
            return
        frame = await admission.look(look)  # the page itself shows what was there before
        if frame.html != shown:
            shown = frame.html
            yield _message(frame.html)
        if frame.is_last:
            yield b"event: end\ndata: end\n\n"
            return
        await asyncio.sleep(POLL_INTERVAL_S)


def _message(html: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in html.splitlines())
    return f"{lines}\n".encode()
