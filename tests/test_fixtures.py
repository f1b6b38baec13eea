"""The servers that every other test stands on."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
import redis
import sqlalchemy as sa

from server.config import get_settings
from server.db import make_engine
from server.embedded.redis import RedisProcess
from tests.support import forked_children, selection
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.processes import cpu_s
from tests.support.utc_day import day_needed_s, until_next_day_s


def list_tables(url: str) -> list[str]:
    engine = make_engine(url)
    try:
        return sa.inspect(engine).get_table_names()
    finally:
        engine.dispose()


def test_database_starts_empty(database_url: str) -> None:
    assert list_tables(database_url) == []


def test_migrated_database_has_tables(migrated_url: str) -> None:
    assert "alembic_version" in list_tables(migrated_url)


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processor_time_of_children_that_ended_is_not_lost() -> None:
    """Children come and go all the while, as the processes of PostgreSQL do."""
    command = "while :; do (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); done"
    with subprocess.Popen(["/bin/sh", "-c", command]) as shell:
        try:
            readings = [cpu_s(shell.pid) for _ in range(20)]
        finally:
            shell.kill()
    assert readings == sorted(readings)
    assert readings[-1] > readings[0]


def test_postgres_is_not_run_by_root(postgres_server: PostgresServer) -> None:
    assert postgres_server.folder.stat().st_uid != 0


def test_postgres_keeps_its_data_over_a_restart() -> None:
    server = PostgresServer()
    try:
        server.start()
        url = server.url(server.create_database())
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept (n int)")
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        assert list_tables(url) == ["kept"]
    finally:
        server.remove()


@pytest.mark.parametrize("visit", [1, 2])
def test_redis_starts_empty(redis_server: RedisProcess, redis_url: str, visit: int) -> None:
    assert redis_url == redis_server.broker_url
    with redis.Redis.from_url(redis_server.client_url) as client:
        assert client.dbsize() == 0
        client.set("left_behind", visit)


def test_private_redis_is_another_server(redis_server: RedisProcess, private_redis: RedisProcess) -> None:
    private_redis.stop()
    assert redis_server.running


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


def test_descriptor_of_a_forked_child_may_have_the_number_under_which_it_arrives() -> None:
    read_fd, write_fd = os.pipe()
    arrived = forked_children._received({number: DupFd(write_fd) for number in (100, 101, 102)})
    try:
        assert not set(arrived) & set(arrived.values())
    finally:
        for fd in (read_fd, write_fd, *arrived.values()):
            os.close(fd)


class DupFd:
    """What a process receives of a descriptor, without a process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        return os.dup(self._fd)
