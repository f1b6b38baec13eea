"""`/metrics`, for Prometheus alone: open on one's own machine, behind a token in production."""

import hmac
from contextlib import suppress

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError

from lethe.errors import NotFound
from server.admission import AdmissionDep
from server.deps import SettingsDep, UnadmittedDatabase
from server.errors import NotAuthenticated, Overloaded
from server.prometheus import exposition

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
