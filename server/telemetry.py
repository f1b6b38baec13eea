"""Traces by OpenTelemetry: optional, and nothing at all unless LETHE_TELEMETRY is set and the extra is installed.

OpenTelemetry's own OTEL_ variables say where spans go. Every span carries the id that is in all logs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from lethe.errors import HostFault
from server.config import get_settings
from server.logging import current_request_id
from server.middleware import HttpMiddleware

UNTRACED = "healthz,readyz,metrics,static/"


def trace_requests(app: FastAPI) -> None:
    """Give each request of `app` a span, if asked for; before RequestIds is added. Raises HostFault."""
    if not get_settings().telemetry:
        return
    provider = _provider("lethe-web")
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor  # noqa: PLC0415 (the group `telemetry`)

    app.add_middleware(_Marked)
    FastAPIInstrumentor.instrument_app(app, tracer_provider=provider, excluded_urls=UNTRACED)


@contextmanager
def span(name: str, **attributes: str | int | float) -> Iterator[None]:
    """Time a piece of a worker's work, if that is asked for."""
    if not get_settings().telemetry:
        yield
        return
    marked = {f"lethe.{key}": value for key, value in attributes.items()}
    tracer = _provider("lethe-worker").get_tracer("lethe")
    with tracer.start_as_current_span(name, attributes=marked | {"lethe.request_id": current_request_id()}):
        yield


class _Marked(HttpMiddleware):
    """Writes the request's id on the span that it runs in."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        from opentelemetry import trace  # noqa: PLC0415 (the group `telemetry`)

        trace.get_current_span().set_attribute("lethe.request_id", current_request_id())
        await self.app(scope, receive, send)


@lru_cache
def _provider(service: str) -> Any:
    """Return this process's provider of tracers. It exports from its own thread, and at the process's end."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise HostFault(f"LETHE_TELEMETRY needs the dependency group `telemetry`; {error.name} is missing") from error
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
