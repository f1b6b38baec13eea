"""The last public page or board that was made, shown while the database does not answer.

What a route lets the proxy cache is kept here as well, if its reader is not logged in. While requests fail with 503, a
page is shown with a line that says how old it is, and a board of the API with `as_of` and the header `Warning: 110`.
"""

import json
from dataclasses import dataclass
from datetime import datetime

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.db import now
from server.middleware import PROXY_LIFETIME, HttpMiddleware
from server.web.cookies import FLASH_COOKIE, SESSION_COOKIE, theme

MAX_BYTES = 16 << 20
MAX_QUERY = 200
JSON = "application/json"
STALE_WARNING = '110 - "the database does not answer: as everybody saw it at {at}"'
MAIN = b'<main id="main" class="wrap" tabindex="-1">'
AS_IT_WAS = (
    '<div class="notice notice-warn" role="status">The database does not answer at this moment. '
    "This is the page as everybody saw it on {at:%d %b %Y, %H:%M:%S} UTC; what came later is missing.</div>"
)

Key = tuple[str, str, str]


@dataclass
class _Answer:
    """The response to a request while it is sent. A 503 is held back."""

    headers: Headers
    body: bytes | None
    is_held: bool


class LastAnswers(HttpMiddleware):
    """Keeps answers by address and theme, the newest within a bound in bytes."""

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(app)
        self.max_bytes = max_bytes
        self.kept: dict[Key, tuple[bytes, str, datetime]] = {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        key = (request.url.path, request.url.query, theme(request))
        answer: _Answer | None = None

        async def send_or_hold(message: Message) -> None:
            nonlocal answer
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                keeps = message["status"] == 200 and PROXY_LIFETIME in headers and _is_anonymous(request)
                answer = _Answer(headers, b"" if keeps else None, message["status"] == 503 and key in self.kept)
            elif answer and answer.body is not None:
                answer.body += message.get("body", b"")
            if not (answer and answer.is_held):
                await send(message)

        await self.app(scope, receive, send_or_hold)
        if answer and answer.is_held:
            await self._last(key)(scope, receive, send)
        elif answer and answer.body is not None:
            self._keep(key, answer.body, answer.headers["content-type"])

    def _keep(self, key: Key, body: bytes, media_type: str) -> None:
        self.kept.pop(key, None)
        self.kept[key] = body, media_type, now()
        while sum(len(body) for body, _, _ in self.kept.values()) > self.max_bytes:
            self.kept.pop(next(iter(self.kept)))

    def _last(self, key: Key) -> Response:
        body, media_type, made_at = self.kept[key]
        headers = {"Cache-Control": "no-store", "Vary": "Cookie", "Content-Type": media_type}
        if media_type != JSON:
            return Response(body.replace(MAIN, MAIN + AS_IT_WAS.format(at=made_at).encode(), 1), headers=headers)
        at = made_at.isoformat()
        shown = json.dumps(json.loads(body) | {"as_of": at}).encode()
        return Response(shown, headers=headers | {"Warning": STALE_WARNING.format(at=at)})


def _is_anonymous(request: Request) -> bool:
    if len(request.url.query) > MAX_QUERY or "authorization" in request.headers:
        return False
    return SESSION_COOKIE not in request.cookies and FLASH_COOKIE not in request.cookies
