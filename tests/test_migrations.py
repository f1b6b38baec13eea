"""No migration locks a big table for longer than a moment, or holds up whoever comes beside it.

None that has landed is renamed, renumbered or removed: the databases of older versions hold its number.
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, event, select, text

from migrations import online
from server import last_times, migrate
from server.db import Database, make_engine
from server.errors import Conflict
from server.last_times import Upkeep
from server.migrate import alembic_config, current_revision, downgrade, upgrade
from server.models.competition import Team
from server.models.participation import Participant
from server.models.submission import Submission
from server.models.worker import Worker
from tests.support.next_version import with_next_version

BIG = ("submissions", "evaluations", "shards", "shard_attempts", "public_scores", "private_scores", "run_logs")
BIG_TABLE = r'"?(?:' + "|".join((*BIG, "audit_events")) + r')"?'
LAST_OF_THE_FIRST_RELEASE = "0002"

# In the order in which they are applied. A new one is added at the end, no line changes afterwards.
LANDED = [
    "0001_first_tables",
    "0002_audit_log_is_append_only",
    "0003_epsilon_of_each_example",
    "0004_what_failures_have_told",
    "0005_ways_back_in",
    "0006_model_shards",
    "0007_mails",
    "0008_worker_tokens",
    "0009_indexes_of_every_day",
    "0010_addresses_are_shared",
    "0011_when_a_team_was_served",
    "0012_no_index_of_claims",
    "0013_metric_results",
    "0014_plain_column_names",
    "0015_uploaded_datasets",
    "0016_benchmarks",
    "0017_rejudging_metric",
    "0018_lost_preparations",
    "0019_metric_attempts",
    "0020_unverified_archives",
    "0021_verified_workers",
    "0022_tokens_addresses_second_factors",
    "0023_verified_workers_online",
    "0024_order_of_the_queue",
    "0025_retraining_processor_time",
    "0026_who_takes_part",
    "0027_phases_and_late_submissions",
    "0028_questions",
    "0029_tasks",
    "0030_publication_of_code",
    "0031_replaced_evaluations",
    "0032_versions_of_splits",
    "0033_unconfirmed_scores",
    "0034_avoided_hosts",
    "0035_scoring_leases",
    "0036_index_of_scoring_leases",
    "0037_scoring_attempts",
]

REFUSED = {
    "an index built under a lock: use migrations.online.add_index": re.compile(
        rf"CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY)\S+ ON {BIG_TABLE}\b", re.IGNORECASE
    ),
    "a column that needs a value in every row: give it a server_default, or let it be empty": re.compile(
        rf"ALTER TABLE {BIG_TABLE} ADD COLUMN (?!.*\bDEFAULT\b).*\bNOT NULL\b", re.IGNORECASE | re.DOTALL
    ),
    "all rows are read under a lock to find an empty one": re.compile(
        rf"ALTER TABLE {BIG_TABLE} ALTER COLUMN \S+ SET NOT NULL", re.IGNORECASE
    ),
    "all rows are written again": re.compile(rf"ALTER TABLE {BIG_TABLE} ALTER COLUMN \S+ TYPE", re.IGNORECASE),
    "all rows are read under a lock: add it NOT VALID, and validate it in a step of its own": re.compile(
        rf"ALTER TABLE {BIG_TABLE} ADD CONSTRAINT (?!.*\bNOT VALID\b).*\b(?:CHECK|FOREIGN KEY|UNIQUE)\b",
        re.IGNORECASE | re.DOTALL,
    ),
}


def problems(statement: str) -> list[str]:
    return [problem for problem, pattern in REFUSED.items() if pattern.search(statement)]


def test_landed_migrations_keep_their_numbers_names_and_order() -> None:
    script = ScriptDirectory.from_config(alembic_config("sqlite://"))
    applied = list(script.walk_revisions())[::-1]
    assert [Path(each.path).stem for each in applied] == LANDED
    assert [each.revision for each in applied] == [name.partition("_")[0] for name in LANDED]


def test_no_migration_locks_a_big_table(postgres_url: str) -> None:
    sent: list[str] = []

    def keep(*arguments: object) -> None:
        sent.append(str(arguments[2]))

    command.upgrade(alembic_config(postgres_url), LAST_OF_THE_FIRST_RELEASE)
    event.listen(Engine, "before_cursor_execute", keep)
    try:
        upgrade(postgres_url)
    finally:
        event.remove(Engine, "before_cursor_execute", keep)
    assert any("CREATE INDEX CONCURRENTLY" in statement for statement in sent)
    assert [(statement, found) for statement in sent if (found := problems(statement))] == []


LOCKS = (
    "CREATE INDEX ix_a ON shards (worker)",
    "CREATE UNIQUE INDEX ix_a ON audit_events (at)",
    "ALTER TABLE submissions ADD COLUMN colour VARCHAR(9) NOT NULL",
    "ALTER TABLE evaluations ALTER COLUMN fault SET NOT NULL",
    "ALTER TABLE shards ALTER COLUMN id TYPE BIGINT",
    "ALTER TABLE shards ADD CONSTRAINT ck_a CHECK (n_runs > 0)",
    "ALTER TABLE run_logs ADD CONSTRAINT fk_a FOREIGN KEY(run) REFERENCES shards (id)",
)
LOCKS_NOTHING = (
    "CREATE INDEX CONCURRENTLY ix_a ON shards (worker)",
    "CREATE INDEX ix_a ON webhooks (url)",
    "ALTER TABLE submissions ADD COLUMN colour VARCHAR(9)",
    "ALTER TABLE submissions ADD COLUMN bright BOOLEAN DEFAULT true NOT NULL",
    "ALTER TABLE shards ADD CONSTRAINT ck_a CHECK (n_runs > 0) NOT VALID",
)


def test_statements_that_lock_are_refused_and_no_others() -> None:
    assert [statement for statement in LOCKS if len(problems(statement)) != 1] == []
    assert [statement for statement in LOCKS_NOTHING if problems(statement)] == []


def test_database_of_a_newer_version_is_named(migrated_sqlite_url: str) -> None:
    engine = create_engine(migrated_sqlite_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(Conflict, match="made by a newer version"):
        upgrade(migrated_sqlite_url)


def test_a_stored_competition_stays_open_and_its_submissions_count(database_url: str) -> None:
    command.upgrade(alembic_config(database_url), "0025")
    engine = make_engine(database_url)
    at = "2026-01-01 00:00:00"
    values = {
        "accounts": {"id": "a", "name": "ada", "name_key": "ada", "password_hash": "!", "role": "organiser"},
        "competitions": {
            "id": "c", "slug": "digits", "title": "Digits", "summary": "", "state": "open", "opens_at": at,
            "closes_at": "2999-01-01 00:00:00", "config": "{}", "source": "", "created_by": "a",
        },
        "teams": {"id": "t", "competition_id": "c", "name": "ada", "name_key": "ada", "leader_id": "a"},
        "submissions": {
            "id": "s", "competition_id": "c", "team_id": "t", "account_id": "a", "filename": "f.py", "kind": "py",
            "content_sha256": "0", "size_bytes": 1, "entry_point": "{}", "message": "", "request_id": "",
            "received_at": at, "stage": "queued",
        },
    }  # fmt: skip
    flags = {"teams": ("is_baseline",), "submissions": ("refunded", "selected")}
    with engine.begin() as connection:
        for table, row in values.items():
            created = {} if table == "submissions" else {"created_at": at}
            whole = row | created | dict.fromkeys(flags.get(table, ()), False)
            names = ", ".join(whole)
            marks = ", ".join(f":{name}" for name in whole)
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), whole)
    engine.dispose()
    upgrade(database_url)
    database = Database(database_url)
    with database.read() as session:
        stored = session.get_one(Submission, "s")
        assert (stored.phase, stored.is_official) == ("", True)
        assert session.get_one(Team, "t").extended_until is None
        assert session.scalars(select(Participant)).all() == []
    database.dispose()


def test_revision_is_known_before_and_after(database_url: str) -> None:
    assert current_revision(database_url) is None
    upgrade(database_url)
    assert (
        current_revision(database_url) == ScriptDirectory.from_config(alembic_config(database_url)).get_current_head()
    )


def test_downgrade_has_conditions(migrated_url: str) -> None:
    present = current_revision(migrated_url)
    with pytest.raises(Conflict, match="no revision before"):
        downgrade(migrated_url, "9999")
    with pytest.raises(Conflict, match="no backup of the last hour was verified"):
        downgrade(migrated_url, "0023")
    database = Database(migrated_url)
    with database.write() as session:
        last_times.note(session, Upkeep.VERIFIED_BACKUP)
        session.add(Worker(name="h-1", device="cpu", memory_mib=1, versions={}))
    if migrated_url.startswith("postgresql"):
        with pytest.raises(Conflict, match="other connections use the database"):
            downgrade(migrated_url, "0023")
    database.dispose()
    with pytest.raises(Conflict, match="1 worker processes were heard of"):
        downgrade(migrated_url, "0023")
    with database.write() as session:
        session.execute(text("DELETE FROM workers"))
    database.dispose()
    assert current_revision(migrated_url) == present
    downgrade(migrated_url, "0023")
    assert current_revision(migrated_url) == "0023"


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
