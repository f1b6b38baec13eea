"""Counts and times each request by its route's pattern: a path with an id in it would make its own series."""

import time

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS = Counter("lethe_http_requests", "Requests answered", ["method", "route", "status"])
SECONDS = Histogram(
    "lethe_http_request_seconds",
    "From a request's first byte to the last byte of its answer",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Measured:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = _pattern(scope)
            REQUESTS.labels(method, route, status).inc()
            SECONDS.labels(method, route).observe(time.perf_counter() - started)


def _pattern(scope: Scope) -> str:
    """Return the path with the names of its parameters in place of their values, "none" if no route took it."""
    if "endpoint" not in scope:
        return "none"
    path: str = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        path = path.replace(f"/{value}", f"/{{{name}}}", 1)
    return path
