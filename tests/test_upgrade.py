"""An upgrade on an instance in use: the next version's migration beside the processes of this one."""

import subprocess
import sys
import threading
import time

import psycopg

from migrations import online
from server import migrate
from server.migrate import upgrade
from tests.support.next_version import with_next_version


def test_migration_that_waits_for_a_table_holds_nobody_up(migrated_postgres_url, tmp_path, monkeypatch):
    """A long read, such as a backup's, has the table. Whoever comes meanwhile must not wait behind the migration."""
    with_next_version(monkeypatch, tmp_path / "next")
    monkeypatch.setattr(migrate, "RETRY_AFTER_S", 0.2)
    monkeypatch.setattr(online, "LOCK_TIMEOUT", "500ms")
    with psycopg.connect(migrated_postgres_url) as long, psycopg.connect(migrated_postgres_url) as other:
        long.execute("SELECT count(*) FROM submissions")  # its lock lasts until the transaction ends
        ended: list[BaseException | None] = []

        def migrate_meanwhile() -> None:
            try:
                upgrade(migrated_postgres_url)
                ended.append(None)
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=migrate_meanwhile)
        thread.start()
        longest = 0.0
        until = time.monotonic() + 2
        while time.monotonic() < until:
            started = time.monotonic()
            other.execute("SET statement_timeout = '20s'")
            other.execute("SELECT count(*) FROM submissions")
            other.rollback()
            longest = max(longest, time.monotonic() - started)
            time.sleep(0.05)
        assert not ended, "the migration cannot be done yet"
        assert longest < 4, f"a query waited {longest:.1f} s"
        long.rollback()
        thread.join(60)
        assert ended == [None]
        other.execute("SELECT of_the_next FROM submissions")


def test_two_migrations_at_once_both_end_well(postgres_url: str) -> None:
    """As of two pods of one job: the second waits for the first and finds nothing to do."""
    program = "import sys; from server.migrate import upgrade; upgrade(sys.argv[1])"
    command = [sys.executable, "-c", program, postgres_url]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
