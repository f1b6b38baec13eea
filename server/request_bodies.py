"""What a request's body may take: bytes, time, and a share of what all bodies hold until their requests end.

A body lies in memory or in a temporary file while it comes: who sends slowly, or much at once, holds it from others.
"""

import asyncio
import math
import re
import time
from collections.abc import Hashable, Sequence

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lethe.errors import AppError
from server.client_address import get_client_address
from server.errors import status_of
from server.shares import Shares

WINDOW_S = 20.0  # over which the least rate is a mean: less than server.serve lets a connection be silent
OWNER = "body_owner"  # in the request's state
ENDS = {"Connection": "close"}  # what is still to come is not read


def count_body_for(request: Request, owner: Hashable) -> None:
    """Count this request's body for somebody other than its client's address: before any of it is read."""
    setattr(request.state, OWNER, owner)


class BodyLimit:
    """ASGI middleware. Refuses a body beyond its path's limit in bytes, announced or not; one that comes too slowly;
    and one for which its sender, or the server, holds too much already.

    limits: the first whose pattern is the whole path; None where the route has one of its own. least_rate: bytes each
    second; 0: any. within_s: for a whole body; 0: any time. Only time in which we wait for the sender counts.
    Not FastAPI's `max_body_size`: it answers in plain text, and our errors are problem documents.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Sequence[tuple[re.Pattern[str], int | None]],
        others: int,
        least_rate: float,
        within_s: float,
        shares: Shares,
    ) -> None:
        self.app = app
        self.limits = limits
        self.others = others
        self.least_rate = least_rate
        self.within_s = within_s or math.inf
        self.shares = shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(self, scope, receive)
        try:
            await self.app(scope, body.receive, send)
        finally:
            body.end()

    def size_limit(self, path: str) -> int | None:
        return next((limit for pattern, limit in self.limits if pattern.fullmatch(path)), self.others)


class _Body:
    """One request's body while it comes."""

    def __init__(self, limits: BodyLimit, scope: Scope, receive: Receive) -> None:
        self._limits = limits
        self._scope = scope
        self._receive = receive
        self._most = limits.size_limit(scope["path"])
        self._owner: Hashable = None
        self._received = 0
        self._is_whole = False
        self._waited_s = 0.0
        self._window_s = 0.0  # waited since the least rate was last looked at
        self._in_window = 0  # bytes that came in it

    async def receive(self) -> Message:
        if self._is_whole:
            return await self._receive()
        if not self._received:
            self._check_announced()
        message = await self._within_time()
        self._is_whole = message["type"] != "http.request" or not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        return message

    def end(self) -> None:
        """Give back what the body held."""
        if self._received:
            self._limits.shares.give_back(self._owner, self._received)

    def _check_announced(self) -> None:
        announced = Headers(scope=self._scope).get("content-length", "0")
        length = int(announced) if announced.isdecimal() else 0
        if self._most is not None and length > self._most:
            raise HTTPException(413, f"This request has at most {self._most} bytes, and it has {announced}")
        request = Request(self._scope)
        self._owner = getattr(request.state, OWNER, None) or get_client_address(request)
        if refusal := self._limits.shares.find_refusal(self._owner, length):
            raise _as_http(refusal)

    async def _within_time(self) -> Message:
        """Return the next piece. Raises HTTPException where the sender is too slow."""
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(min(WINDOW_S - self._window_s, self._limits.within_s - self._waited_s)):
                    return await self._receive()
            except TimeoutError:
                pass
            finally:
                waited_s = time.monotonic() - began
                self._waited_s += waited_s
                self._window_s += waited_s
            self._check_time()

    def _check_time(self) -> None:
        """Raise HTTPException where the body takes too long, or too little of it came in a window that is over."""
        limits = self._limits
        if self._waited_s >= limits.within_s:
            raise HTTPException(408, f"A request's body comes within {limits.within_s:g} s; this one did not", ENDS)
        if self._in_window < limits.least_rate * WINDOW_S:
            rate = f"{limits.least_rate / 1024:g} KiB/s over {WINDOW_S:g} s"
            raise HTTPException(408, f"A request's body comes with at least {rate}; this one came more slowly", ENDS)
        self._window_s, self._in_window = 0.0, 0

    def _count(self, received: int) -> None:
        if not received:
            return
        if self._most is not None and self._received + received > self._most:
            raise HTTPException(413, f"This request has at most {self._most} bytes")
        if refusal := self._limits.shares.find_refusal(self._owner, received, of_this=self._received):
            raise _as_http(refusal)
        self._limits.shares.take(self._owner, received)
        self._received += received
        self._in_window += received


def _as_http(refusal: AppError) -> HTTPException:
    """Return a refusal as FastAPI lets it through from the reading of a body."""
    return HTTPException(status_of(refusal), refusal.detail, {"Retry-After": str(refusal.retry_after_s)} | ENDS)
