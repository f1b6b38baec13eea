"""A remote worker's calls: tried again while the server is away, given up where it refuses, the token kept close."""

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

from server.models.evaluation import ShardKind
from server.models.worker import WorkerFacts
from tests.server.evaluations.conftest import N
from tests.support.stored_outputs import outputs
from worker.remote.client import NotHeld, ServerUnreachable, TokenRefused, WorkerApi, WorkerRefused
from worker.remote.transport import MAX_LOG_BYTES, HttpTransport, logs_as_data

FACTS = WorkerFacts("w", "cpu", 1024, {"torch": "2.13.0"})
SHARD: Any = SimpleNamespace(shard_id=7, attempt=2)
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
    shard: Any = SimpleNamespace(shard_id=7, attempt=2, kind=ShardKind.RUNS)
    measured = replace(outputs(0), cpu_time_s=np.ones(N))
    transport = HttpTransport(make_api(script), FACTS)
    assert transport.close(shard, measured.to_bytes(), (), wall_time_s=1.0, weights=b"weights")
    sent = [(method, path.rpartition("/")[2], body) for method, path, _, body in script.asked]
    # Servers of earlier versions refuse arrays that they do not know.
    assert sent == [("PUT", "weights", b"weights"), ("PUT", "result", outputs(0).to_bytes())]


def test_result_is_not_sent_when_its_weights_are_refused(serve: Callable[..., Scripted]) -> None:
    script = serve(data(404, detail="no longer held"))
    shard: Any = SimpleNamespace(shard_id=7, attempt=2, kind=ShardKind.RUNS)
    assert not HttpTransport(make_api(script), FACTS).close(shard, b"result", (), wall_time_s=1.0, weights=b"weights")
    assert len(script.asked) == 1
