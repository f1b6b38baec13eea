"""Traces: nothing by default, a clear word where the extra is missing, spans with the logs' id where it is there."""

import importlib.util
import sys
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient

from lethe.errors import HostFault
from server import telemetry
from server.config import get_settings
from server.middleware import RequestIds

INSTALLED = importlib.util.find_spec("opentelemetry.sdk") is not None
needs_extra = pytest.mark.skipif(not INSTALLED, reason="the extra `telemetry` is not installed")


def small_app() -> FastAPI:
    app = FastAPI()

    @app.get("/things/{thing}")
    def thing(thing: str) -> str:
        return thing

    @app.get("/healthz")
    def healthz() -> str:
        return "ok"

    telemetry.trace_requests(app)
    app.add_middleware(RequestIds)
    return app


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_TELEMETRY", "true")
    get_settings.cache_clear()


@pytest.fixture
def spans(asked_for: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where finished spans are kept."""
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(telemetry, "_provider", lambda _: provider)
    return kept


def test_nothing_is_traced_or_imported_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_provider", lambda _: pytest.fail("asked for a provider"))
    small_app()
    with telemetry.span("shard", shard=1):
        pass


def test_missing_extra_is_named(asked_for: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    telemetry._provider.cache_clear()
    with pytest.raises(HostFault, match=r"dependency group `telemetry`"), telemetry.span("shard"):
        pass


@needs_extra
def test_request_gives_a_span_with_its_id_and_health_gives_none(spans: Any) -> None:
    with TestClient(small_app()) as client:
        client.get("/things/7", headers={"X-Request-ID": "abcdefgh"})
        client.get("/healthz")
    found = [one for one in spans.get_finished_spans() if one.parent is None]
    assert [one.name for one in found] == ["GET /things/{thing}"]
    assert found[0].attributes["lethe.request_id"] == "abcdefgh"


@needs_extra
def test_work_gives_a_span_with_what_it_was_about(spans: Any) -> None:
    with structlog.contextvars.bound_contextvars(request_id="abcdefgh"), telemetry.span("shard", shard=3):
        pass
    (found,) = spans.get_finished_spans()
    assert found.name == "shard"
    assert dict(found.attributes) == {"lethe.shard": 3, "lethe.request_id": "abcdefgh"}
