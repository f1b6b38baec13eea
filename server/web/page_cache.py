"""Pages that are the same for everybody who is not logged in, kept for a time in proportion to their cost.

A page that took t seconds to make is shown for 20 t seconds, at most ten. One request makes it again, the others
meanwhile get the old one. Nothing that was made for somebody, or that sets a cookie, is kept.

While the database does not answer, the last page that was made is shown to everybody, with a line that says so; so is
the last answer of the API that holds a board, with `as_of` and the header `Warning: 110`.
"""

import gzip
import hashlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.cost_cache import LONGEST_S, lifetime_s
from server.db import now
from server.web.compression import compress
from server.web.cookies import FLASH_COOKIE, SESSION_COOKIE, theme

MOST_KEPT = 8 << 20  # bytes, compressed: every query makes a page of its own
LONGEST_QUERY = 200
JSON = "application/json"
HEADERS = {"Cache-Control": "private, no-cache", "Vary": "Cookie, Accept-Encoding"}

BOARDS = re.compile(r"/api/v1/competitions/[^/]+/leaderboard")
STALE = '110 - "the database does not answer: as everybody saw it at {at}"'
MAIN = b'<main id="main" class="wrap" tabindex="-1">'
AS_IT_WAS = (
    '<div class="notice notice-warn" role="status">The database does not answer at this moment. '
    "This is the page as everybody saw it on {at:%d %b %Y, %H:%M:%S} UTC; what came later is missing.</div>"
)

Key = tuple[str, str, str]


@dataclass
class _Kept:
    compressed: bytes
    media_type: str
    etag: str
    path_params: dict[str, Any]  # of the route, for what counts requests by route
    until: float
    made_at: datetime


class AnonymousPages:
    """Kept pages by address and theme. Used from the event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, most: int = MOST_KEPT) -> None:
        self._clock, self._most = clock, most
        self._kept: dict[Key, _Kept] = {}
        self._paths: set[str] = set()
        self._total = 0

    def key(self, request: Request) -> Key | None:
        """Return what the page is kept under, or None if it is not the same for everybody."""
        if request.method != "GET" or SESSION_COOKIE in request.cookies or FLASH_COOKIE in request.cookies:
            return None
        if "authorization" in request.headers:
            return None
        query = request.url.query
        return (request.url.path, query, theme(request)) if len(query) <= LONGEST_QUERY else None

    def get(self, key: Key, request: Request) -> Response | None:
        """Return the kept page while it is fresh. The first who finds it stale makes it again."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        at = self._clock()
        if at >= kept.until:
            kept.until = at + LONGEST_S  # until the one who now makes it again is done
            return None
        request.scope.update(endpoint=self.get, path_params=kept.path_params)
        headers = {**HEADERS, "ETag": kept.etag}
        if request.headers.get("if-none-match") == kept.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(kept.compressed, media_type=kept.media_type, headers=headers)
        return Response(gzip.decompress(kept.compressed), media_type=kept.media_type, headers=headers)

    def get_last(self, request: Request) -> Response | None:
        """Return the last page that was made for everybody, marked with when that was."""
        key = (request.url.path, request.url.query, theme(request))
        kept = self._kept.get(key) if request.method == "GET" else None
        if kept is None:
            return None
        request.scope.update(endpoint=self.get, path_params=kept.path_params)
        if kept.media_type == JSON:
            at = kept.made_at.isoformat()
            body = json.dumps(json.loads(gzip.decompress(kept.compressed)) | {"as_of": at}).encode()
            headers = {"Cache-Control": "no-store", "Warning": STALE.format(at=at)}
            return Response(body, media_type=JSON, headers=headers)
        mark = AS_IT_WAS.format(at=kept.made_at).encode()
        body = gzip.decompress(kept.compressed).replace(MAIN, MAIN + mark, 1)
        return Response(body, media_type=kept.media_type, headers={"Cache-Control": "no-store", "Vary": "Cookie"})

    def holds(self, path: str) -> bool:
        """Return whether a page of this address may be kept: a quick no for nearly all requests."""
        return path in self._paths

    def keep(self, key: Key, response: Response, *, path_params: dict[str, Any], cost_s: float) -> None:
        """Keep a page that was just made, if it may be shown to others."""
        if response.status_code == 503:  # the one before is still there for `get_last`, and for nobody else
            if kept := self._kept.get(key):
                kept.until = self._clock()
            return
        if response.status_code != 200 or "set-cookie" in response.headers or not isinstance(response.body, bytes):
            self._drop(key)
            return
        etag = f'W/"{hashlib.sha256(response.body).hexdigest()[:24]}"'  # weak: the same for both encodings
        response.headers["ETag"] = etag
        compressed = compress(response.body)
        self._drop(key)
        self._paths.add(key[0])
        self._total += len(compressed)
        self._kept[key] = _Kept(
            compressed=compressed,
            media_type=response.media_type or "text/html",
            etag=etag,
            path_params=path_params,
            until=self._clock() + lifetime_s(cost_s),
            made_at=now(),
        )
        while self._total > self._most:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        self._kept.clear()
        self._paths.clear()
        self._total = 0

    def _drop(self, key: Key) -> None:
        dropped = self._kept.pop(key, None)
        if dropped:
            self._total -= len(dropped.compressed)
            if not any(path == key[0] for path, _, _ in self._kept):
                self._paths.discard(key[0])


anonymous_pages = AnonymousPages()


class _Held:
    """Sends an answer on, but holds back one that says 503. body: of one that says 200."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.messages: list[Message] = []
        self.body: bytes | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            self.body = b""
        elif self.body is not None:
            self.body += message.get("body", b"")
        if self.messages or (message["type"] == "http.response.start" and message["status"] == 503):
            self.messages.append(message)
        else:
            await self._send(message)


class KeptPages:
    """ASGI middleware: answers with a kept page before anything is routed or looked up, or where that fails."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_board = scope["type"] == "http" and BOARDS.fullmatch(scope["path"]) is not None
        if scope["type"] != "http" or not (is_board or anonymous_pages.holds(scope["path"])):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        key = anonymous_pages.key(request)
        if answer := anonymous_pages.get(key, request) if key and not is_board else None:
            await answer(scope, receive, send)
            return
        held = _Held(send)
        await self.app(scope, receive, held)
        if held.messages and (last := anonymous_pages.get_last(request)):
            await last(scope, receive, send)
            return
        if is_board and key and held.body:
            anonymous_pages.keep(key, Response(held.body, media_type=JSON), path_params={}, cost_s=0.0)
        for message in held.messages:
            await send(message)
