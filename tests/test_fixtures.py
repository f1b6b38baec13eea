"""The servers that every other test stands on; and a test process keeps to its own folder and to this machine."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
import redis

from server.config import get_settings
from server.embedded.redis import RedisProcess
from tests.support import selection
from tests.support.apart import day_needed_s, until_next_day_s
from tests.support.ports import free_port

ACCOUNT = (
    "INSERT INTO accounts (id, name, name_key, password_hash, role, created_at) "
    "VALUES ('a', 'Ada', 'ada', 'x', 'participant', now())"
)
EVENT = "SELECT nextval('audit_events_id_seq')"
ASKED = """
SELECT (SELECT count(*) FROM accounts), (SELECT is_called FROM audit_events_id_seq), to_regclass('left_behind') IS NULL,
    (SELECT version_num <> '9999' FROM alembic_version),
    (SELECT attnotnull FROM pg_attribute WHERE attrelid = 'accounts'::regclass AND attname = 'name')
"""


@pytest.mark.parametrize(
    "left",
    [
        ACCOUNT,
        EVENT,
        "CREATE TABLE left_behind (visit int)",
        "ALTER TABLE accounts ALTER name DROP NOT NULL",
        "SELECT 1",
    ],
)
def test_each_test_has_a_database_without_what_others_left(migrated_postgres_url: str, left: str) -> None:
    with psycopg.connect(migrated_postgres_url) as connection:
        assert connection.execute(ASKED).fetchone() == (0, False, True, True, True)
        connection.execute(left)


@pytest.mark.parametrize("visit", [1, 2])
def test_redis_starts_empty(redis_server: RedisProcess, redis_url: str, visit: int) -> None:
    assert redis_url == redis_server.broker_url
    with redis.Redis.from_url(redis_server.client_url) as client:
        assert client.dbsize() == 0
        client.set("left_behind", visit)


def test_settings_come_from_no_developer_machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert [name for name in os.environ if name.startswith("LETHE_")] == ["LETHE_HOME"]
    assert get_settings().home.is_relative_to(tmp_path_factory.getbasetemp())


@pytest.mark.parametrize(
    ("at", "waits_s"),
    [
        (datetime(2027, 1, 31, 23, 59, 20, tzinfo=UTC), 0.0),
        (datetime(2027, 1, 31, 23, 59, 40, tzinfo=UTC), 20.0),
        (datetime(2028, 2, 29, 23, 59, 59, 750_000, tzinfo=UTC), 0.25),
        (datetime(2028, 3, 1, tzinfo=UTC), 0.0),
    ],
)
def test_no_test_begins_shortly_before_midnight(at: datetime, waits_s: float) -> None:
    assert until_next_day_s(at, needed_s=day_needed_s("tests/server/x.py::test_y")) == waits_s


def test_free_port_is_nobody_elses() -> None:
    """Neither of this process nor of another, nor one that the kernel gives to outgoing connections."""
    code = "from tests.support.ports import free_port; print(free_port())"
    elsewhere = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    ports = [free_port() for _ in range(50)]
    assert len({elsewhere, *ports}) == 51
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < lowest


@pytest.mark.parametrize("name", [*selection.ELSEWHERE, *selection.LONGEST_FIRST, *selection.TOGETHER])
def test_what_is_left_out_or_runs_first_exists(name: str) -> None:
    assert list(Path(__file__).parents[1].glob(f"{name}*"))


ROOT = Path(__file__).parents[1]


def test_temporary_files_lie_in_the_process_own_folder() -> None:
    folder = Path(tempfile.gettempdir())
    assert any(part.startswith("lethe-tests-") for part in folder.parts)
    child = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
    assert subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip() == str(folder)


def test_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """Nor does one that it has started, as pytest-xdist starts and kills its own."""
    started = "import os; from tests.support import apart; apart.own_folder(); os._exit(9)"
    starting = f"""
import os, subprocess, sys
from tests.support import apart
apart.own_folder()
print(subprocess.run([sys.executable, "-c", {started!r}]).returncode, len(os.listdir(os.environ["TMPDIR"])))
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_DEBUG_TEMPROOT"}
    done = subprocess.run(
        [sys.executable, "-c", starting],
        env=environment | {"TMPDIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["9", "1"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")])
@pytest.mark.parametrize("way", ["connect", "connect_ex"])
def test_no_test_connects_beyond_this_machine(way: str, family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as outward, pytest.raises(RuntimeError, match=f"a test asks the network: {way} {host}"):
        getattr(outward, way)((host, 80))


@pytest.mark.parametrize("way", ["getaddrinfo", "gethostbyname", "gethostbyname_ex"])
def test_no_test_asks_for_a_name(way: str) -> None:
    with pytest.raises(RuntimeError, match=rf"a test asks the network: {way} example\.org"):
        getattr(socket, way)(*("example.org", 80)[: 2 if way == "getaddrinfo" else 1])


def test_this_machines_own_name_may_be_asked_for() -> None:
    with suppress(socket.gaierror):  # it may have no address
        socket.gethostbyname(socket.gethostname())


def test_what_a_test_starts_finds_no_index() -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--find-links", os.devnull, "left-pad"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No matching distribution" in done.stderr


def test_threads_start_while_others_are_traced() -> None:
    """Coverage installs a trace function in each thread; before Python 3.12 an audit hook lets two of them collide."""
    tracing = """
import sys, threading
from tests.support import apart
apart.refuse_network()
sys.setswitchinterval(1e-6)
failed = []
def trace():
    for _ in range(20_000):
        try:
            sys.settrace(None)
        except RuntimeError as error:
            failed.append(error)
threads = [threading.Thread(target=trace) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(failed))
"""
    done = subprocess.run([sys.executable, "-c", tracing], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 0
