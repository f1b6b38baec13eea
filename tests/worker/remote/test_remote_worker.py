"""A remote worker: its calls and its loop, while the server is away, refuses, or says something wrong."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import ShardKind
from server.models.worker import WorkerFacts
from tests.server.evaluations.conftest import N
from tests.support.leases import outputs
from worker.context import RunningContext
from worker.host import backoff, graceful_shutdown
from worker.host.backoff import QUARANTINE_AFTER
from worker.remote import loop
from worker.remote.client import NotHeld, ServerUnreachable, TokenRefused, WorkerApi, WorkerRefused
from worker.remote.loop import REFUSED, STOPPED, RemoteWorker
from worker.remote.pool import RemoteSettings
from worker.remote.transport import MAX_LOG_BYTES, HttpTransport, logs_as_data

FACTS = WorkerFacts("w", "cpu", 1024, {"torch": "2.13.0"})
SHARD: Any = SimpleNamespace(
    request_id="r", submission_id="s", shard_id=7, attempt=2, first_run=0, n_runs=1, kind=ShardKind.RUNS
)
Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Scripted:
    """A real HTTP server that gives its answers in turn, the last one for ever, and keeps what it was asked."""

    answers: list[Answer]
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def serve() -> Iterator[Callable[..., Scripted]]:
    servers: list[ThreadingHTTPServer] = []

    def start(*answers: Answer) -> Scripted:
        script = Scripted(list(answers))

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                script.asked.append((self.command, self.path, dict(self.headers), body))
                status, headers, content = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(content))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = answer

            def log_message(self, *_args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        script.url = f"http://127.0.0.1:{server.server_address[1]}"
        return script

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def data(status: int, **body: Any) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(body).encode()


def make_api(script: Scripted) -> WorkerApi:
    return WorkerApi(script.url, token="lethe_worker_secret", name="host-1-ab")


def test_call_is_sent_again_until_the_server_is_back(serve: Callable[..., Scripted]) -> None:
    script = serve(data(503, detail="no database"), data(502), data(200, held=True))
    assert make_api(script).step(SHARD, "PUT", "lease", body={"runs_done": 1}) is True
    assert [(method, path) for method, path, _, _ in script.asked] == [
        ("PUT", "/api/v1/worker/host-1-ab/shards/7/2/lease")
    ] * 3
    assert all(headers["Authorization"] == "Bearer lethe_worker_secret" for _, _, headers, _ in script.asked)


@pytest.mark.parametrize(
    ("status", "error"), [(401, TokenRefused), (403, TokenRefused), (404, NotHeld), (409, WorkerRefused)]
)
def test_refusal_is_told_at_once_and_not_tried_again(serve, status, error):
    script = serve(data(status, detail="the reason"))
    with pytest.raises(error, match="the reason"):
        make_api(script).register(FACTS)
    assert len(script.asked) == 1


def test_server_that_is_away_is_a_fault_of_the_host(serve: Callable[..., Scripted]) -> None:
    script = serve(data(503, detail="away"))
    with pytest.raises(ServerUnreachable, match="answered 503: away"):
        make_api(script).claim()
    with pytest.raises(ServerUnreachable, match="did not answer"):
        WorkerApi("http://127.0.0.1:1", token="t", name="n").claim()


def test_storages_own_address_is_followed_without_the_token(serve: Callable[..., Scripted], tmp_path: Path) -> None:
    storage = serve((200, {}, b"content"))
    away = storage.url.replace("127.0.0.1", "localhost")
    script = serve((307, {"Location": f"{away}/bucket/key?signature=1"}, b""))
    make_api(script).download(SHARD, "0" * 64, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert "Authorization" not in storage.asked[0][2]
    assert make_api(script).file(SHARD, "0" * 64) == b"content"


def test_logs_are_cut_to_what_a_request_may_hold() -> None:
    logs = logs_as_data([(0, "early" * 100_000), (1, "\x01" * 200_000)])
    assert len(json.dumps(logs)) < MAX_LOG_BYTES + 1000
    assert logs[-1]["run"] == 1  # the last one tells why it failed
    assert logs[-1]["text"]
    assert logs_as_data([(3, "short")]) == [{"run": 3, "text": "short"}]


def test_weights_are_sent_before_the_result_that_names_them(serve: Callable[..., Scripted]) -> None:
    script = serve((204, {}, b""), data(200, held=True))
    measured = replace(outputs(0), cpu_time_s=np.ones(N))
    transport = HttpTransport(make_api(script), FACTS)
    assert transport.close(SHARD, measured.to_bytes(), (), wall_time_s=1.0, weights=b"weights")
    sent = [(method, path.rpartition("/")[2], body) for method, path, _, body in script.asked]
    # Servers of earlier versions refuse arrays that they do not know.
    assert sent == [("PUT", "weights", b"weights"), ("PUT", "result", outputs(0).to_bytes())]


def test_result_is_not_sent_when_its_weights_are_refused(serve: Callable[..., Scripted]) -> None:
    script = serve(data(404, detail="no longer held"))
    assert not HttpTransport(make_api(script), FACTS).close(SHARD, b"result", (), wall_time_s=1.0, weights=b"weights")
    assert len(script.asked) == 1


TERMS = {"lease_s": 7.0, "heartbeat_s": 1.5, "poll_s": 0.0, "refusals": []}


class Server:
    """Answers calls with what a test lays down, in turn; after the last it asks the worker to stop."""

    url = "http://server"

    def __init__(self, *claims: Any, terms: Any = TERMS) -> None:
        self.claims, self.terms, self.calls = list(claims), terms, []

    def register(self, facts: WorkerFacts) -> Any:
        self.calls.append("register")
        return _give(self.terms)

    def claim(self) -> Any:
        self.calls.append("claim")
        if not self.claims:
            graceful_shutdown.begin(give_back_after_s=0)
            return None
        return _give(self.claims.pop(0))

    def set_state(self, state: str, detail: str = "") -> None:
        self.calls.append(f"{state} {detail}".strip())

    def close(self) -> None:
        self.calls.append("close")


def _give(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


@pytest.fixture(autouse=True)
def _no_stop_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(loop, "_wait", lambda _seconds: None)
    yield
    graceful_shutdown.reset()


def work(server: Any, tmp_path: Path, run: Any = lambda _context, _shard: "done") -> int:
    return RemoteWorker(RemoteSettings(home=tmp_path), server, FACTS, run=run).serve()


def test_worker_registers_runs_its_shards_and_reports_the_stop(tmp_path: Path) -> None:
    server, ran = Server(SHARD, None, SHARD), []

    def run(context: RunningContext, shard: ClaimedShard) -> str:
        ran.append((shard, context.settings.lease_s, context.settings.heartbeat_s))
        return "done"

    assert work(server, tmp_path, run) == STOPPED
    assert ran == [(SHARD, 7.0, 1.5)] * 2
    assert server.calls == ["register", *["claim"] * 4, "stopped", "close"]


def test_server_that_was_away_hears_again_who_works(tmp_path: Path) -> None:
    server = Server(ServerUnreachable("away"), ServerUnreachable("away"), None)
    assert work(server, tmp_path) == STOPPED
    assert server.calls == ["register", "claim"] * 3 + ["claim", "stopped", "close"]


def test_refused_token_or_worker_ends_it(tmp_path: Path) -> None:
    assert work(Server(TokenRefused("revoked")), tmp_path) == REFUSED
    assert work(Server(terms=WorkerRefused("no split takes it")), tmp_path) == REFUSED


def test_shard_that_breaks_does_not_end_the_worker(tmp_path: Path) -> None:
    def run(_context: RunningContext, _shard: ClaimedShard) -> str:
        raise RuntimeError("unforeseen")

    server = Server(SHARD, SHARD)
    assert work(server, tmp_path, run) == STOPPED
    assert server.calls.count("claim") == 3


def test_host_fault_pauses_claims(tmp_path: Path) -> None:
    looks: list[int] = []

    def run(context: RunningContext, _shard: ClaimedShard) -> str:
        context.cooling.fault()
        return "given-back"

    def wait(_seconds: float) -> None:
        looks.append(1)
        if len(looks) == 5:
            graceful_shutdown.begin(give_back_after_s=0)

    server = Server(*[SHARD] * 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_wait", wait)
        assert work(server, tmp_path, run) == STOPPED
    assert server.calls.count("claim") == 1


def test_quarantined_worker_says_why_and_registers_again_after_its_canary(tmp_path, monkeypatch):
    problems, contexts = ["the disk is full", ""], list[RunningContext]()

    def run(context: RunningContext, _shard: ClaimedShard) -> str:
        contexts.append(context)
        for _ in range(QUARANTINE_AFTER):
            context.cooling.fault("no space left")
        return "given-back"

    def wait(_seconds: float) -> None:
        for context in contexts:
            context.cooling._until = 0.0

    monkeypatch.setattr(backoff, "problem", lambda _settings: problems.pop(0))
    monkeypatch.setattr(loop, "_wait", wait)
    server = Server(SHARD)
    assert work(server, tmp_path, run) == STOPPED
    told = ["quarantined no space left", "quarantined the disk is full"]
    assert server.calls == ["register", "claim", *told, "register", "claim", "stopped", "close"]


def test_remote_worker_in_production_needs_only_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_ENVIRONMENT", "production")
    assert RemoteSettings().environment == "production"
    monkeypatch.setenv("LETHE_SANDBOX_BACKEND", "plain")
    with pytest.raises(ValueError, match="plain confines nothing"):
        RemoteSettings()
