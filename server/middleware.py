"""What is done to every request: one id in its log lines, its answer and its problem document; a limit on its body."""

import re
import secrets
import time

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger()

HEADER = "X-Request-ID"
GIVEN = re.compile(r"[A-Za-z0-9._-]{8,64}")
UNLOGGED = ("/healthz", "/readyz", "/metrics", "/static/")


class RequestIds:
    """ASGI middleware. Takes the id that a proxy gave if it looks like one, and logs one line per request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if GIVEN.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0
        started = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, send_with_id)
            finally:
                self._log(scope, status=status, seconds=time.perf_counter() - started)

    def _log(self, scope: Scope, *, status: int, seconds: float) -> None:
        if scope["path"].startswith(UNLOGGED):
            return
        log.info(
            "request", method=scope["method"], path=scope["path"], status=status or None, ms=round(seconds * 1000, 1)
        )


class BodyLimit:
    """ASGI middleware. Refuses a body beyond `max_bytes`, announced or not; uploads have limits of their own.

    Not FastAPI's `max_body_size`: it answers in plain text, and our errors are problem documents.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, uploads: re.Pattern[str]) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.uploads.fullmatch(scope["path"]):
            await self.app(scope, receive, send)
            return
        received = 0

        async def receive_capped() -> Message:
            nonlocal received
            announced = Headers(scope=scope).get("content-length", "0")
            if announced.isdecimal() and int(announced) > self.max_bytes:
                raise HTTPException(413, f"A request has at most {self.max_bytes} bytes, this one has {announced}")
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise HTTPException(413, f"A request has at most {self.max_bytes} bytes")
            return message

        await self.app(scope, receive_capped, send)
