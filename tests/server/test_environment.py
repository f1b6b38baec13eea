"""What a process starts with and tells: settings and limits, its log, its traces."""

import importlib.util
import logging
import os
import resource
import socket
import subprocess
import sys
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import HostFault, InvalidInput
from server import logging as server_logging
from server import telemetry
from server.config import Settings, get_settings
from server.embedded.instance import _listen
from server.environment import raise_open_files_limit, unknown_variables
from server.middleware import RequestIds


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LETHE_PROT", "LETHE_PORT"),
        ("LETHE_WORKER_CONCURENCY", "LETHE_WORKER_CONCURRENCY"),
        ("lethe_databse_url", "LETHE_DATABASE_URL"),
        ("LETHE_TOKN", "LETHE_TOKEN"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest_one(variable, meant):
    (said,) = unknown_variables({variable: "1"}, Settings.model_fields)
    assert said == f"{variable} is no setting and changes nothing: did you mean {meant}?"


def test_what_is_read_elsewhere_and_other_programs_variables_are_not_named():
    fine = {"LETHE_PORT": "1", "lethe_home": "/x", "LETHE_URL": "u", "LETHE_TEST_DATA": "d", "PATH": "p", "LETHES": "1"}
    assert unknown_variables(fine, Settings.model_fields) == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"LETHE_PORT": "abc"}, "LETHE_PORT=abc: Input should be a valid integer"),
        ({"LETHE_PORT": "70000"}, "LETHE_PORT=70000: Input should be less than or equal to 65535"),
        ({"LETHE_ENVIRONMENT": "prod"}, "LETHE_ENVIRONMENT=prod: Input should be 'embedded' or 'production'"),
        ({"LETHE_SANDBOX_BACKEND": "runsc"}, "LETHE_SANDBOX_BACKEND=runsc: Input should be 'bubblewrap' or 'plain'"),
        ({"LETHE_LEASE_S": "0"}, "LETHE_LEASE_S=0: Input should be greater than 0"),
        (
            {"LETHE_DATABASE_URL": "nonsense"},
            "LETHE_DATABASE_URL: must begin with sqlite://, postgresql://, postgresql+psycopg://",
        ),
        ({"LETHE_DATABASE_URL": "postgresql+psycopg://h:x/y"}, "LETHE_DATABASE_URL: is no URL such as postgresql"),
        ({"LETHE_STORAGE_URL": "nope://x"}, "LETHE_STORAGE_URL: must begin with file://, s3://"),
        ({"LETHE_REDIS_URL": "localhost:6379"}, "LETHE_REDIS_URL: must begin with redis://"),
        ({"LETHE_ENVIRONMENT": "production"}, "LETHE_ENVIRONMENT=production needs LETHE_DATABASE_URL"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_its_variable(monkeypatch, variables, said):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    with pytest.raises(InvalidInput) as found:
        get_settings()
    get_settings.cache_clear()
    assert said in found.value.detail
    assert "\n" not in found.value.detail


@pytest.mark.parametrize("module", ["server", "worker"])
def test_processes_end_with_the_sentence_and_no_traceback(module, tmp_path):
    environment = os.environ | {"LETHE_HOME": str(tmp_path / "home"), "LETHE_PORT": "x"}
    done = subprocess.run(
        [sys.executable, "-m", module], check=False, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.strip().startswith("error: LETHE_PORT=x: Input should be a valid integer")
    assert "Traceback" not in done.stderr


def test_a_chosen_port_that_is_taken_is_an_error_and_another_habit_is_not(monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HostFault, match=f"cannot listen on 127.0.0.1: port {port} is taken"):
            _listen(Settings(port=port))
        with _listen(Settings.model_construct(_fields_set=set(), **Settings(port=port).model_dump())) as found:
            assert found.getsockname()[1] != port


@pytest.mark.parametrize("command", ["demo", "up"])
def test_commands_take_home_host_and_port(command):
    shown = CliRunner().invoke(build_app(), [command, "--help"], env={"COLUMNS": "200"}).output
    for option in ("--home", "--host", "--port"):
        assert option in shown
    refused = CliRunner().invoke(build_app(), [command, "--port", "99999"])
    assert refused.exit_code == 2


UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 20_000, 20_000),
        (1024, 1 << 20, 65_536),
        (1024, UNLIMITED, 65_536),
        (1024, 1024, None),
        (1 << 20, 1 << 20, None),
        (UNLIMITED, UNLIMITED, None),
    ],
)
def test_soft_limit_becomes_what_the_system_allows(monkeypatch, soft, hard, after):
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    raise_open_files_limit()
    assert asked == ([] if after is None else [(after, hard)])


HOSTILE = "/x\x1b[2J\x9b31m\r\nfake=1\u202e\u2028"


@pytest.fixture
def _restored() -> object:
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    yield
    root.handlers[:] = kept
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("as_json", [False, True])
def test_hostile_text_is_escaped_wherever_it_stands(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    server_logging.configure(as_json=as_json)
    structlog.get_logger().info("request", path=HOSTILE, other=[HOSTILE], **{HOSTILE: 1})
    logging.getLogger("some.library").warning("refused %s", HOSTILE)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "".join(lines).isprintable()
    assert all("x1b[2J" in line for line in lines)
    structlog.get_logger().error("unexpected", exc_info=ValueError(HOSTILE))
    written = capsys.readouterr().err
    assert not [character for character in written if not character.isprintable() and character not in "\n\t"]


@pytest.mark.usefixtures("_restored")
def test_traceback_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    server_logging.configure(as_json=False)
    structlog.get_logger().error("unexpected", exc_info=ValueError("wrong"))
    assert "\nValueError: wrong\n" in capsys.readouterr().err


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
