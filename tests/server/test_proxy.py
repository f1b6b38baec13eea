"""docker/nginx.conf in front of an application: what it buffers, limits, compresses and caches."""

import gzip
import itertools
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import yaml

from server.middleware import PROXY_CACHE
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
CONFIG = (ROOT / "docker" / "nginx.conf").read_text()
nginx = shutil.which("nginx")
needs_nginx = pytest.mark.skipif(nginx is None, reason="nginx is not on PATH (Debian: package nginx-light)")


class Application(BaseHTTPRequestHandler):
    """Counts its answers, which name the client and the bytes that came."""

    protocol_version = "HTTP/1.1"
    count = itertools.count()
    began: list[float] = []  # noqa: RUF012 (of all requests)

    def do_GET(self) -> None:
        self.began.append(time.monotonic())
        received = len(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        body = f"{next(self.count)} {received} {self.headers['X-Forwarded-For']} {'x' * 2000}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/html")
        self.send_header("Vary", "Cookie")
        for name, value in PROXY_CACHE.items() if self.path.startswith("/competitions") else ():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder, port = tmp_path_factory.mktemp("proxy"), free_port()
    with ThreadingHTTPServer(("127.0.0.1", 0), Application) as application:
        threading.Thread(target=application.serve_forever, daemon=True).start()
        config = CONFIG.replace("/tmp/", f"{folder}/").replace("listen 8080", f"listen 127.0.0.1:{port}")
        config = config.replace("web:8000", f"127.0.0.1:{application.server_port}")
        config = re.sub(r"(header|body)_timeout \d+s", r"\1_timeout 1s", config)
        (folder / "nginx.conf").write_text(("user root;" if os.geteuid() == 0 else "") + config)
        assert nginx is not None
        command = [nginx, "-e", "/dev/stderr", "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
        with subprocess.Popen(command) as process:
            try:
                wait_for(port)
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                    yield client
            finally:
                process.terminate()
                application.shutdown()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_nginx
@pytest.mark.parametrize("begun", [b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n12"])
def test_slow_request_is_ended_and_not_passed_on(proxy: httpx.Client, begun: bytes) -> None:
    before = len(Application.began)
    with socket.create_connection((proxy.base_url.host, proxy.base_url.port or 0)) as connection:
        connection.settimeout(20)
        connection.sendall(begun)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer == b"" or b" 408 " in answer
    assert len(Application.began) == before


@needs_nginx
def test_large_body_is_refused_but_an_upload_passes_whole(proxy: httpx.Client) -> None:
    body = b"x" * (3 << 20)
    assert proxy.post("/api/v1/tokens", content=body).status_code == 413
    for path in ("/api/v1/competitions/a/submissions", "/competitions/a/submit", "/api/v1/worker/w/shards/1/1/result"):
        assert f" {3 << 20} " in proxy.post(path, content=body).text


@needs_nginx
def test_public_page_is_cached_for_visitors_only(proxy: httpx.Client) -> None:
    first = proxy.get("/competitions/a/leaderboard")
    assert PROXY_CACHE.keys() & first.headers.keys() == set()
    assert proxy.get("/competitions/a/leaderboard").text == first.text
    for headers in ({"Cookie": "lethe_session=x"}, {"Authorization": "Bearer x"}, {"Cookie": "lethe_theme=dark"}):
        assert proxy.get("/competitions/a/leaderboard", headers=headers).text != first.text
    assert proxy.get("/account").text != proxy.get("/account").text, "no other page is"


@needs_nginx
def test_answer_is_compressed_and_names_the_client(proxy: httpx.Client) -> None:
    with proxy.stream("GET", "/", headers={"Accept-Encoding": "gzip", "X-Forwarded-For": "192.0.2.7"}) as answer:
        body = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert b"192.0.2.7" in gzip.decompress(body)


def test_proxy_asks_the_web_server_of_compose_and_of_the_pod() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert "./docker/nginx.conf:/etc/lethe/nginx.conf:ro" in services["proxy"]["volumes"]
    assert CONFIG.count("proxy_pass http://web:8000;") == CONFIG.count("location ")
    objects = yaml.safe_load_all((ROOT / "docs" / "operators" / "deploy" / "kubernetes.yaml").read_text())
    [pod] = [
        one["spec"]["template"]["spec"]
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "lethe-web")
    ]
    assert pod["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["web"]}]
    image = next(one["image"] for one in pod["containers"] if one["name"] == "proxy")
    assert image == services["proxy"]["image"]
