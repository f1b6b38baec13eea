"""docker-compose.yml's processes, started as it says but without Docker, hold a whole competition."""

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from server.embedded.redis import start_redis
from tests.support.compose import ROOT, UNITS, Compose
from tests.support.fake_docker import FakeDocker, database_renamed, docker_on_path
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer

OURS = ("migrate", "web", "worker", "worker-gpu", "messages", "backup", "beat")
PROBE = """
import json, os, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def writable(path):
    try:
        open(f"{path}/probe", "w").close(); os.remove(f"{path}/probe")
        return True
    except OSError:
        return False
size = lambda path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize
print(json.dumps({
    "ids": status["Uid"].split() + status["Gid"].split() + status["Groups"].split(),
    "capabilities": [status[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"],
    "writable": [path for path in sys.argv[1:] if writable(path)],
    "sizes": {path: size(path) for path in sys.argv[1:] if os.path.isdir(path)},
    "processes": sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit()),
    "settings": sorted(name for name in os.environ if name.startswith("LETHE_")),
}))
"""
LIMITS = ("memory.max", "memory.limit_in_bytes", "pids.max")
ELSEWHERE = ["/", "/usr", "/etc", "/var/lib", "/root", str(ROOT)]
NOBODY = "0" * 16

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
                    "WORKER_MEMORY": "4g",
                },
                addresses={
                    "LETHE_PUBLIC_URL": f"http://127.0.0.1:{port}",
                    "LETHE_WORKER_CONCURRENCY": "1",
                    "LETHE_DATABASE_URL": postgres_server.url(postgres_server.create_database()),
                    "LETHE_REDIS_URL": redis.broker_url,
                },
                sockets=(postgres_server.folder, folder / "redis"),
                port=port,
                path=(postgres_server.programs,),
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
@pytest.mark.parametrize("name", OURS)
def test_service_has_users_mounts_and_limits_of_the_file(compose: Compose, name: str) -> None:
    service = compose.services[name]
    volumes = [compose.filled(volume).split(":")[1] for volume in service.get("volumes", ())]
    scratch = dict(entry.split(":") for entry in service.get("tmpfs", ()))
    looked_at = [*volumes, *scratch, "/dev/shm", "/backups", "/var/lib/lethe/storage", *ELSEWHERE]
    found = json.loads(compose.run(name, ["python", "-c", PROBE, *looked_at]).splitlines()[-1])
    user, group = service["user"].split(":")
    assert found["ids"] == [user] * 4 + [group] * 4
    assert found["capabilities"] == [NOBODY] * 5
    assert found["no_new_privileges"] == "1"
    assert set(found["writable"]) == {*volumes, *scratch, "/dev/shm"}
    sizes = {path: re.search(r"size=(\d+[mg])", options) for path, options in scratch.items()}
    asked = {path: size[1] for path, size in sizes.items() if size} | {"/dev/shm": service.get("shm_size", "64m")}
    assert {path: found["sizes"][path] for path in asked} == {path: in_bytes(size) for path, size in asked.items()}
    assert found["processes"] == [1], "it sees no other process"
    assert set(service["environment"]) - set(found["settings"]) <= {"FORWARDED_ALLOW_IPS", "NVIDIA_DRIVER_CAPABILITIES"}
    files = [group / name for group in compose.groups for name in LIMITS]
    limits = {file.name: file.read_text().strip() for file in files if file.exists()}
    if limits:
        assert limits["pids.max"] == str(service["pids_limit"])
        memory = limits.get("memory.max") or limits["memory.limit_in_bytes"]
        assert int(memory) == in_bytes(compose.filled(service["mem_limit"]))


@needs_root
def test_limit_of_memory_ends_what_takes_more(compose: Compose) -> None:
    with pytest.raises(RuntimeError, match="ended with") as ended:
        compose.run("migrate", ["python", "-c", "taken = b'x' * (3 << 29); print('taken', len(taken))"])
    assert "taken" not in str(ended.value)


def in_bytes(size: str) -> int:
    return int(size[:-1]) * UNITS[size[-1]]


@needs_root
@pytest.mark.slow
def test_smoke_script_runs_on_these_processes(compose: Compose, postgres_server: PostgresServer) -> None:
    """From an empty database to a score in the worker's sandbox, a backup and its restore."""
    url = f"http://127.0.0.1:{compose.port}"
    database = compose.addresses["LETHE_DATABASE_URL"].partition("@/")[2].partition("?")[0]

    def on_server(statement: str) -> None:
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute(database_renamed(statement, database).encode())

    docker = FakeDocker(compose, sql=on_server, is_ready=lambda: answers(f"{url}/readyz", within_s=300))
    with docker_on_path(compose.folder, docker) as programs:
        done = subprocess.run(
            ["sh", ROOT / "scripts" / "smoke-compose"],
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + "\n".join(docker.asked)
        assert "all of it works" in done.stdout
        assert done.stdout.count("score 0.") == 2, "before the backup and after its restore"
        assert httpx.get(f"{url}/metrics", trust_env=False).status_code == 401
        token = {"Authorization": f"Bearer {compose.values['LETHE_METRICS_TOKEN']}"}
        assert "lethe_workers" in httpx.get(f"{url}/metrics", headers=token, trust_env=False).text
