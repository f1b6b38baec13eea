"""docker-compose.yml's processes, started as it says but without Docker, hold a whole competition."""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from server.embedded.redis import start_redis
from tests.support.compose import Compose
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("unshare"),
    reason="takes on another user and makes namespaces, which needs root, setpriv and unshare",
)


@pytest.fixture
def compose(postgres_server: PostgresServer) -> Iterator[Compose]:
    with tempfile.TemporaryDirectory(prefix="lethe-compose-") as name:
        folder = Path(name)
        (folder / "redis").mkdir()
        with start_redis(folder / "redis") as redis:
            for path in (folder / "redis", *(folder / "redis").iterdir()):
                path.chmod(0o777)
            secret = secrets.token_hex(32)
            port = free_port()
            running = Compose(
                folder=folder,
                values={
                    "POSTGRES_PASSWORD": secret,
                    "LETHE_SECRET_KEY": secret,
                    "LETHE_METRICS_TOKEN": secret,
                    "LETHE_PUBLIC_URL": f"http://127.0.0.1:{port}",
                    "LETHE_WORKER_CONCURRENCY": "1",
                    "WORKER_MEMORY": "4g",
                },
                addresses={
                    "LETHE_DATABASE_URL": postgres_server.url(postgres_server.create_database()),
                    "LETHE_REDIS_URL": redis.broker_url,
                },
                sockets=(postgres_server.folder, folder / "redis"),
                port=port,
            )
            postgres_server.folder.chmod(0o755)
            try:
                yield running
            finally:
                running.close()


def answers(url: str, *, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, trust_env=False, timeout=5).is_success:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    return False


@needs_root
@pytest.mark.slow
def test_services_hold_a_competition(compose: Compose) -> None:
    """From an empty database to a score in the worker's sandbox, with the first administrator of the web container."""
    compose.run("migrate")
    compose.start("web")
    url = f"http://127.0.0.1:{compose.port}"
    assert answers(f"{url}/readyz"), compose.log("web")
    password = secrets.token_hex(16)
    compose.run("web", ["lethe", "create-admin", "ada", "--password-stdin"], given=f"{password}\n")
    for name in ("worker", "messages", "beat"):
        compose.start(name)
    said = compose.run("web", ["python", "-m", "server.cli.smoke", url, "ada"], given=f"{password}\n")
    assert "score 0." in said, said
    for group in compose.groups:
        used = any(f"-{name}-" in group.name for name in ("worker", "messages", "beat"))
        assert bool((group / "cgroup.procs").read_text()) or not used, group
    assert httpx.get(f"{url}/metrics", trust_env=False).status_code == 401
    token = {"Authorization": f"Bearer {compose.values['LETHE_METRICS_TOKEN']}"}
    assert "lethe_workers" in httpx.get(f"{url}/metrics", headers=token, trust_env=False).text
    for name in ("worker", "messages", "beat", "web"):
        assert compose.started[name].poll() is None, compose.log(name)[-2000:]
    started = time.monotonic()
    for name in ("worker", "messages", "beat", "web"):
        compose.stop(name)  # within the grace period that the file gives it
    assert time.monotonic() - started < 60
