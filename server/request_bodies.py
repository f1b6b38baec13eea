"""Limits of a request's body: bytes and a deadline. The proxy buffers slow ones (docker/nginx.conf)."""

import asyncio
import math
import re
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """ASGI middleware. Refuses a body beyond its path's limit in bytes, announced or not, or beyond its deadline.

    limits: the first whose pattern is the whole path; None where the route has one of its own. within_s: for a whole
    body; 0: any time. Only time in which we wait for the sender counts.
    Not FastAPI's `max_body_size`: it answers in plain text, and our errors are problem documents.
    """

    def __init__(
        self, app: ASGIApp, *, limits: Sequence[tuple[re.Pattern[str], int | None]], others: int, within_s: float
    ) -> None:
        self.app = app
        self.limits = limits
        self.others = others
        self.within_s = within_s or math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = next((limit for pattern, limit in self.limits if pattern.fullmatch(scope["path"])), self.others)
        received, waited_s, is_whole = 0, 0.0, False

        async def limited() -> Message:
            nonlocal received, waited_s, is_whole
            if is_whole:
                return await receive()
            if not received:
                _check_announced(scope, most)
            began = time.monotonic()
            try:
                async with asyncio.timeout(self.within_s - waited_s):
                    message = await receive()
            except TimeoutError:
                detail = f"A request's body comes within {self.within_s:g} s; this one did not"
                raise HTTPException(408, detail, {"Connection": "close"}) from None  # what is to come is not read
            waited_s += time.monotonic() - began
            received += len(message.get("body", b""))
            if most is not None and received > most:
                raise HTTPException(413, f"This request has at most {most} bytes")
            is_whole = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        await self.app(scope, limited, send)


def _check_announced(scope: Scope, most: int | None) -> None:
    announced = Headers(scope=scope).get("content-length", "0")
    if most is not None and announced.isdecimal() and int(announced) > most:
        raise HTTPException(413, f"This request has at most {most} bytes, and it has {announced}")
