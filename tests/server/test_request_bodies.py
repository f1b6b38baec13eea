"""A body has a size and a deadline."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request

from server.middleware import BodyLimit
from server.problem_details import add_handlers

KIB = 1024


def answer(pieces: AsyncIterator[bytes], *, within_s: float = 0.0, announced: int | None = None) -> tuple[int, Any]:
    """Return status and body of what a route answers that reads the whole body, which comes in these pieces."""
    app = FastAPI()
    add_handlers(app)
    app.add_middleware(BodyLimit, limits=(), others=64 * KIB, within_s=within_s)

    @app.post("/send")
    async def send(request: Request) -> int:
        return len(await request.body())

    headers = [(b"host", b"x"), *([(b"content-length", b"%d" % announced)] if announced else [])]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/send", "raw_path": b"/send", "query_string": b"", "root_path": "", "headers": headers,
        "client": ("192.0.2.1", 1), "server": ("x", 80), "state": {},
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        piece = await anext(pieces, b"")
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    async def keep(message: Any) -> None:
        sent.append(message)

    asyncio.run(asyncio.wait_for(app(scope, receive, keep), 60))
    return sent[0]["status"], json.loads(sent[1]["body"])


async def pieces(count: int, *, every_s: float = 0.0) -> AsyncIterator[bytes]:
    for _ in range(count):
        await asyncio.sleep(every_s)
        yield b"x" * KIB


def test_body_beyond_its_deadline_is_refused() -> None:
    status, problem = answer(pieces(100, every_s=0.05), within_s=0.3)
    assert (status, problem["type"]) == (408, "urn:lethe:problem:too-slow")
    assert "within 0.3 s" in problem["detail"]


def test_body_beyond_its_size_is_refused() -> None:
    assert answer(pieces(64)) == (200, 64 * KIB)
    assert answer(pieces(65))[0] == 413
    assert answer(pieces(0), announced=65 * KIB)[0] == 413
