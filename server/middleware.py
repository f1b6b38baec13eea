"""What is done to every request: one id in its log lines, its answer and its problem document; headers that would
cost much to read, or break what reads them, are left out. The address that limits count a client by."""

import ipaddress
import re
import secrets
import time

import structlog
from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger()

HEADER = "X-Request-ID"
GIVEN = re.compile(r"[A-Za-z0-9._-]{8,64}")
OUR_COOKIES = b"lethe_"  # begins all their names
CHARSET = re.compile(rb";\s*charset\b[^;]*", re.IGNORECASE)
PROXY_LIFETIME = "X-Accel-Expires"  # nginx answers with a page for that many seconds; nobody who is logged in
PROXY_CACHE = {PROXY_LIFETIME: "2"}
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


class PlainHeaders:
    """ASGI middleware. Hands on our own cookies only, and lets no form name an encoding: all are UTF-8.

    Python takes the square of a quoted cookie's length in time, and as much of a text's in punycode; other encodings
    of its own raise errors that nobody expects, or give characters that are no text.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
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
