"""`/metrics`, for Prometheus alone: open on one's own machine, behind a token in production."""

import hmac

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from lethe.errors import NotFound
from server.deps import SessionDep, SettingsDep
from server.errors import NotAuthenticated
from server.prometheus import service

router = APIRouter(include_in_schema=False)


@router.get("/metrics")
def metrics(request: Request, session: SessionDep, settings: SettingsDep) -> Response:
    """Return all figures in Prometheus' text format."""
    expected = settings.metrics_token.get_secret_value()
    if not expected and settings.environment == "production":
        raise NotFound("Metrics are off: set LETHE_METRICS_TOKEN")
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if expected and not hmac.compare_digest(given.encode(), expected.encode()):
        raise NotAuthenticated("Metrics need the token of LETHE_METRICS_TOKEN")
    return Response(service.exposition(session, settings), media_type=CONTENT_TYPE_LATEST)
