"""Pages that are the same for everybody who is not logged in, kept for a moment in proportion to their cost.

A page that took t seconds to make is shown for 20 t seconds, at most five. One request makes it anew, the others
meanwhile get the old one. Nothing that was made for somebody, or that sets a cookie, is kept.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request, Response

from server.leaderboard.cache import KEPT_PER_SECOND_OF_COST, LONGEST_S
from server.web.compression import compress
from server.web.cookies import FLASH_COOKIE, SESSION_COOKIE, theme

MOST_PAGES = 500
LONGEST_QUERY = 200
HEADERS = {"Cache-Control": "private, no-cache", "Vary": "Cookie, Accept-Encoding"}

Key = tuple[str, str, str]


@dataclass
class _Kept:
    body: bytes
    compressed: bytes
    media_type: str
    until: float


class AnonymousPages:
    """Kept pages by address and theme. Used from the event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()

    def key(self, request: Request) -> Key | None:
        """Return what the page is kept under, or None if it is not the same for everybody."""
        if request.method != "GET" or SESSION_COOKIE in request.cookies or FLASH_COOKIE in request.cookies:
            return None
        query = request.url.query
        return (request.url.path, query, theme(request)) if len(query) <= LONGEST_QUERY else None

    def get(self, key: Key, request: Request) -> Response | None:
        """Return the kept page while it is fresh. The first who finds it stale makes it anew."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        at = self._clock()
        if at >= kept.until:
            kept.until = at + LONGEST_S  # until the one who now makes it anew is done
            return None
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = {**HEADERS, "Content-Encoding": "gzip"}
            return Response(kept.compressed, media_type=kept.media_type, headers=headers)
        return Response(kept.body, media_type=kept.media_type, headers=HEADERS)

    def keep(self, key: Key, response: Response, *, cost_s: float) -> None:
        """Keep a page that was just made, if it may be shown to others."""
        if response.status_code != 200 or "set-cookie" in response.headers or not isinstance(response.body, bytes):
            self._kept.pop(key, None)
            return
        self._kept[key] = _Kept(
            body=response.body,
            compressed=compress(response.body),
            media_type=response.media_type or "text/html",
            until=self._clock() + min(LONGEST_S, KEPT_PER_SECOND_OF_COST * cost_s),
        )
        while len(self._kept) > MOST_PAGES:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        self._kept.clear()


anonymous_pages = AnonymousPages()
