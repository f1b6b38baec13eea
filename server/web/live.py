"""Live parts of pages as server-sent events. A stream ends when nothing more will change, or after a while: the
browser then connects again, so that no connection holds up a restart for long. Without a stream the page polls."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

LOOK_EVERY_S = 1.0
LONGEST_S = 60.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class Frame:
    """A part of a page as it is now. After the last one nothing will change."""

    html: str
    is_last: bool


def stream(request: Request, look: Callable[[], Frame]) -> StreamingResponse:
    """Answer with a stream that sends the part whenever it has changed. `look` runs in a thread, once a second."""
    return StreamingResponse(_events(request, look), media_type="text/event-stream", headers=HEADERS)


async def _events(request: Request, look: Callable[[], Frame]) -> AsyncIterator[bytes]:
    shown = ""
    for _ in range(int(LONGEST_S / LOOK_EVERY_S)):
        if await request.is_disconnected():
            return
        frame = await run_in_threadpool(look)
        if frame.html != shown:
            shown = frame.html
            yield _message(frame.html)
        if frame.is_last:
            yield b"event: end\ndata: end\n\n"
            return
        await asyncio.sleep(LOOK_EVERY_S)


def _message(html: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in html.splitlines())
    return f"{lines}\n".encode()
