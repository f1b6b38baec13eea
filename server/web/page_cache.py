"""Pages that are the same for everybody who is not logged in, kept for a time in proportion to their cost.

A page that took t seconds to make is shown for 20 t seconds, at most ten. One request makes it again, the others
meanwhile get the old one. Nothing that was made for somebody, or that sets a cookie, is kept.
"""

import gzip
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.cost_cache import LONGEST_S, lifetime_s
from server.web.compression import compress
from server.web.cookies import FLASH_COOKIE, SESSION_COOKIE, theme

MOST_KEPT = 8 << 20  # bytes, compressed: every query makes a page of its own
LONGEST_QUERY = 200
HEADERS = {"Cache-Control": "private, no-cache", "Vary": "Cookie, Accept-Encoding"}

Key = tuple[str, str, str]


@dataclass
class _Kept:
    compressed: bytes
    media_type: str
    etag: str
    path_params: dict[str, Any]  # of the route, for what counts requests by route
    until: float


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

    def holds(self, path: str) -> bool:
        """Return whether a page of this address may be kept: a quick no for nearly all requests."""
        return path in self._paths

    def keep(self, key: Key, response: Response, *, path_params: dict[str, Any], cost_s: float) -> None:
        """Keep a page that was just made, if it may be shown to others."""
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


class KeptPages:
    """ASGI middleware: answers with a kept page before anything is routed or looked up."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._kept(Request(scope)) if self._may_be_kept(scope) else None
        await (answer or self.app)(scope, receive, send)

    @staticmethod
    def _may_be_kept(scope: Scope) -> bool:
        return scope["type"] == "http" and anonymous_pages.holds(scope["path"])

    @staticmethod
    def _kept(request: Request) -> Response | None:
        key = anonymous_pages.key(request)
        return anonymous_pages.get(key, request) if key else None
