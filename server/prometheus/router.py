"""`/metrics`, for Prometheus alone: open on one's own machine, behind a token in production."""

import hmac
import time
from contextlib import suppress

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Histogram
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import Message, Receive, Scope, Send

from lethe.errors import NotFound
from server.admission import AdmissionDep
from server.deps import SettingsDep, UnadmittedDatabase
from server.errors import NotAuthenticated, Overloaded
from server.middleware import HttpMiddleware
from server.prometheus import exposition

REQUESTS = Counter("lethe_http_requests", "Requests answered", ["method", "route", "status"])
SECONDS = Histogram(
    "lethe_http_request_seconds",
    "From a request's first byte to the last byte of its answer",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Measured(HttpMiddleware):
    """Counts requests and the time that they take."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
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


router = APIRouter(include_in_schema=False)


@router.get("/metrics")
async def metrics(
    request: Request, database: UnadmittedDatabase, settings: SettingsDep, admission: AdmissionDep
) -> Response:
    """Return all figures in Prometheus' text format; while the database is silent, the last ones for a
    while, then this process's own."""
    expected = settings.metrics_token.get_secret_value()
    if not expected and settings.environment == "production":
        raise NotFound("Metrics are off: set LETHE_METRICS_TOKEN")
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if expected and not hmac.compare_digest(given.encode(), expected.encode()):
        raise NotAuthenticated("Metrics need the token of LETHE_METRICS_TOKEN")
    readiness = await request.app.state.readiness.get()
    kept: exposition.LastFigures = request.app.state.last_figures
    if readiness.ready:
        with suppress(SQLAlchemyError, Overloaded):  # it stopped answering since
            kept.put(await admission.run(exposition.figures, database))
    figures = kept.get()
    shown = await run_in_threadpool(exposition.exposition, figures, database, settings, readiness.answers())
    return Response(shown, media_type=CONTENT_TYPE_LATEST)
