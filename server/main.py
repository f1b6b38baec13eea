"""The web application: routes, error answers, request ids, health."""

import gc
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from server import health, logging, queue, telemetry
from server.admission import Admission, Shares
from server.api import (
    accounts,
    benchmarks,
    dashboard,
    datasets,
    leaderboard,
    metric_results,
    participation,
    questions,
    rejudging,
    submission_analysis,
    teams,
    webhooks,
)
from server.api.admin import router as admin
from server.api.competitions.router import router as competitions_router
from server.api.submissions.router import router as submissions_router
from server.api.workers.remote_router import router as remote_workers_router
from server.api.workers.router import router as worker_tokens_router
from server.config import get_settings
from server.middleware import BodyLimit, PlainHeaders, RequestIds, SecurityHeaders
from server.problem_details import Problem, add_handlers, problems
from server.prometheus.exposition import LastFigures
from server.prometheus.router import Measured
from server.prometheus.router import router as metrics_router
from server.web.help_pages import first_sentence
from server.web.last_answers import LastAnswers
from server.web.page_router import error_page
from server.web.router import router as pages_router

ORGANISERS_ROUTERS = (
    admin.public,
    admin.organisers,
    admin.administrators,
    dashboard.staff,
    dashboard.organisers,
    submission_analysis.router,
    rejudging.router,
    webhooks.router,
    participation.organisers,
    questions.organisers,
)
VERSION = "0.1.0"
COLLECTED_AFTER = (10_000, 20, 50)  # objects more than before, then collections of each younger generation
SWITCHED_AFTER_S = 0.0005
MAX_BODY_BYTES = 1 << 20  # of any request but an upload
MAX_SHORT_BYTES = 32 << 10  # of what anybody may send: to name each wrong value of a megabyte takes a second
SHORT = re.compile(
    r"(?:/api/v1)?/(?:accounts?|tokens|me|login|logout|register|forgot|reset|submissions)(?:/.*)?"
    r"|(?:/api/v1)?/competitions/[^/]+/(?:teams?|invitations)(?:/.*)?"
)
UPLOADS = re.compile(
    r"(?:/api/v1)?/competitions/[^/]+/(?:submissions|submit)|(?:/api/v1)?/datasets"
    r"|/api/v1/worker/[^/]+/shards/[0-9]+/[0-9]+/(result|weights)"
)
DESCRIPTION = """\
Lethe evaluates machine-unlearning submissions. Log in with `POST /api/v1/tokens` and send the token as
`Authorization: Bearer lethe_...`. Errors are problem documents (RFC 9457) that name field, value and what is allowed.
Times are UTC.
"""


def create_app() -> FastAPI:
    """Return the application. uvicorn: `--factory server.main:create_app`."""
    settings = get_settings()
    logging.configure(as_json=settings.log_json)
    app = FastAPI(
        title="Lethe",
        description=DESCRIPTION,
        version=VERSION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        routes=list(_routes()),
    )
    app.state.admission = Admission()
    app.state.readiness = health.Checks()
    app.state.last_figures = LastFigures()
    app.state.streams = Shares(per_owner=settings.streams_per_account, in_all=settings.streams, what="live pages open")
    add_handlers(app)
    app.state.error_page = error_page
    app.add_middleware(LastAnswers)
    app.add_middleware(PlainHeaders)
    app.add_middleware(
        BodyLimit,
        limits=((UPLOADS, None), (SHORT, MAX_SHORT_BYTES)),
        others=MAX_BODY_BYTES,
        within_s=settings.body_within_s,
    )
    app.add_middleware(SecurityHeaders)
    telemetry.trace_requests(app)
    app.add_middleware(RequestIds)
    app.add_middleware(Measured)
    if proxies := settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=proxies)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's own way to extend the document
    return app


@asynccontextmanager
async def _lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Hold no answer up for the interpreter's own work, for a thread that computes, or for a broker that is silent.

    What start-up made is out of the collector's sight, and the collector comes seldom: it walked all of it. An answer
    waits for the database a dozen times, and after each for a thread that computes a board to let go of the
    interpreter: usually 5 ms.
    """
    queue.client().shorten_request_timeouts()
    usual_threshold, usual_interval = gc.get_threshold(), sys.getswitchinterval()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    sys.setswitchinterval(SWITCHED_AFTER_S)
    yield
    sys.setswitchinterval(usual_interval)
    gc.set_threshold(*usual_threshold)
    gc.unfreeze()


@lru_cache
def _routes() -> list[BaseRoute]:
    """Return every route. What FastAPI works out of them, a third of a second of computing, serves all applications."""
    everything = APIRouter()
    for router in (health.router, metrics_router, _api(), pages_router):
        everything.include_router(router)
    return everything.routes


def _api() -> APIRouter:
    api = APIRouter(prefix="/api/v1", responses=problems(400, 408, 413, 422, 429, 500, 503))
    for router in (
        accounts.router,
        competitions_router,
        teams.router,
        participation.router,
        questions.router,
        submissions_router,
        datasets.router,
        leaderboard.router,
        metric_results.router,
        benchmarks.router,
        *ORGANISERS_ROUTERS,
        worker_tokens_router,
        remote_workers_router,
    ):
        api.include_router(router)
    return api


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for operation in (one for path in document["paths"].values() for one in path.values()):
            if text := operation.get("description"):
                operation["summary"] = first_sentence(text)
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["Problem"] = problem
        app.openapi_schema = document
    return app.openapi_schema
