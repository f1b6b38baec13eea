"""What is done to every request: one id in its log lines, its answer and its problem document; headers that would
cost much to read, or break what reads them, are left out. The address that limits count a client by. A body has
a limit and a deadline."""

import asyncio
import ipaddress
import math
import re
import secrets
import time
from collections.abc import Sequence

import structlog
from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HttpMiddleware:
    """ASGI middleware: `handle` has each HTTP request; what is none goes on as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.handle if scope["type"] == "http" else self.app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class BodyLimit(HttpMiddleware):
    """Refuses a body beyond its path's limit in bytes, announced or not, or beyond its deadline.

    limits: the first whose pattern is the whole path; None where the route has one of its own. within_s: for a whole
    body; 0: any time. Only time in which we wait for the sender counts.
    Not FastAPI's `max_body_size`: it answers in plain text, and our errors are problem documents.
    """

    def __init__(
        self, app: ASGIApp, *, limits: Sequence[tuple[re.Pattern[str], int | None]], others: int, within_s: float
    ) -> None:
        super().__init__(app)
        self.limits = limits
        self.others = others
        self.within_s = within_s or math.inf

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        max_bytes = next((each for pattern, each in self.limits if pattern.fullmatch(scope["path"])), self.others)
        received, waited_s, is_whole = 0, 0.0, False

        async def limited() -> Message:
            nonlocal received, waited_s, is_whole
            if is_whole:
                return await receive()
            if not received:
                _check_announced(scope, max_bytes)
            began = time.monotonic()
            try:
                async with asyncio.timeout(self.within_s - waited_s):
                    message = await receive()
            except TimeoutError:
                detail = f"A request's body comes within {self.within_s:g} s; this one did not"
                raise HTTPException(408, detail, {"Connection": "close"}) from None  # what is to come is not read
            waited_s += time.monotonic() - began
            received += len(message.get("body", b""))
            if max_bytes is not None and received > max_bytes:
                raise HTTPException(413, f"This request has at most {max_bytes} bytes")
            is_whole = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        await self.app(scope, limited, send)


def _check_announced(scope: Scope, max_bytes: int | None) -> None:
    announced = Headers(scope=scope).get("content-length", "0")
    if max_bytes is not None and announced.isdecimal() and int(announced) > max_bytes:
        raise HTTPException(413, f"This request has at most {max_bytes} bytes, and it has {announced}")


log = structlog.get_logger()

HEADER = "X-Request-ID"
GIVEN = re.compile(r"[A-Za-z0-9._-]{8,64}")
OUR_COOKIES = b"lethe_"  # begins all their names
CHARSET = re.compile(rb";\s*charset\b[^;]*", re.IGNORECASE)
PROXY_LIFETIME = "X-Accel-Expires"  # nginx answers with a page for that many seconds; nobody who is logged in
PROXY_CACHE = {PROXY_LIFETIME: "2"}
UNLOGGED = ("/healthz", "/readyz", "/metrics", "/static/")


class RequestIds(HttpMiddleware):
    """Takes the id that a proxy gave if it looks like one, and logs one line per request."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
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


class PlainHeaders(HttpMiddleware):
    """Hands on our own cookies only, and lets no form name an encoding: all are UTF-8.

    Python takes the square of a quoted cookie's length in time, and as much of a text's in punycode; other encodings
    of its own raise errors that nobody expects, or give characters that are no text.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["headers"] = [(name, _plain(name, value)) for name, value in scope["headers"]]
        await self.app(scope, receive, send)


def _plain(name: bytes, value: bytes) -> bytes:
    if name == b"cookie":
        cookies = (cookie.strip() for cookie in value.split(b";"))
        return b"; ".join(one for one in cookies if one.startswith(OUR_COOKIES) and b"\\" not in one)
    if name == b"content-type":
        return CHARSET.sub(b"", value)
    return value


def get_client_address(request: Request) -> str:
    """Return what stands for one client: its address, or the /64 that a client with IPv6 has to itself."""
    address = request.client.host if request.client else "unknown"
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return address


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
HSTS = "max-age=31536000"


class SecurityHeaders(HttpMiddleware):
    """Adds the headers that the answer does not already carry."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https":
                    headers.setdefault("Strict-Transport-Security", HSTS)
            await send(message)

        await self.app(scope, receive, send_with_headers)
