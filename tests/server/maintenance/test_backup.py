"""A backup brings back rows and files, on both databases."""

import hashlib
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, tzinfo
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, select, text

from lethe.errors import HostFault
from server.config import Settings, get_settings
from server.db import Database
from server.errors import Conflict
from server.maintenance import backup, database_copy
from server.maintenance.backup import DamagedStorage, back_up, back_up_in_series, bring_back, verify
from server.models.competition import Split
from server.models.evaluation import Evaluation, Shard
from server.storage import Storage
from tests.faults.cluster import wait_until
from tests.support.black_hole import black_hole
from tests.support.instance import instance as running
from tests.support.leases import flip_a_byte
from tests.support.postgres import PostgresServer


@pytest.fixture
def _client_programs(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{postgres_server.programs}{os.pathsep}{os.environ['PATH']}")


def instance(tmp_path: Path, name: str, url: str) -> Settings:
    return Settings(home=tmp_path / name, database_url=url, storage_url=(tmp_path / name / "storage").as_uri())


def empty_of_the_same_kind(url: str, tmp_path: Path, server: PostgresServer) -> str:
    is_sqlite = make_url(url).get_backend_name() == "sqlite"
    return f"sqlite:///{tmp_path / 'other.db'}" if is_sqlite else server.url(server.create_database())


@pytest.mark.usefixtures("_client_programs")
def test_backup_brings_back_every_row_and_file(migrated_url, tmp_path, postgres_server):
    database = Database(migrated_url)
    with database.write() as session:
        session.execute(
            text(
                "INSERT INTO accounts (id, name, name_key, password_hash, role, created_at) "
                "VALUES ('a', 'Ädä', 'ädä', 'x', 'participant', '2026-01-01 00:00:00')"
            )
        )
    database.dispose()
    source = instance(tmp_path, "source", migrated_url)
    Storage(source.resolved_storage_url).write("submissions/ab/abc", b"code")
    made = back_up(source, tmp_path / "copy")
    assert (made.files, made.bytes) == (1, 4)
    target = instance(tmp_path, "target", empty_of_the_same_kind(migrated_url, tmp_path, postgres_server))
    bring_back(target, tmp_path / "copy")
    assert Storage(target.resolved_storage_url).read("submissions/ab/abc") == b"code"
    database = Database(target.resolved_database_url)
    with database.read() as session:
        assert session.execute(text("SELECT name FROM accounts")).scalars().all() == ["Ädä"]
        assert session.execute(text("SELECT count(*) FROM alembic_version")).scalar_one() == 1
    database.dispose()


def test_nothing_is_overwritten_and_a_broken_off_backup_not_restored(tmp_path: Path, migrated_sqlite_url: str) -> None:
    source = instance(tmp_path, "source", migrated_sqlite_url)
    back_up(source, tmp_path / "copy")
    with pytest.raises(Conflict, match="not empty"):
        back_up(source, tmp_path / "copy")
    with pytest.raises(Conflict, match="exists"):
        bring_back(source, tmp_path / "copy")
    (tmp_path / "copy" / "backup.json").unlink()
    with pytest.raises(Conflict, match="no whole backup"):
        bring_back(source, tmp_path / "copy")


@pytest.mark.parametrize("damaged", ["storage/evaluations/e/runs-0", "lethe.db"])
def test_damaged_backup_is_not_restored(tmp_path: Path, migrated_sqlite_url: str, *, damaged: str) -> None:
    """The same number of bytes, and one of them another."""
    source = instance(tmp_path, "source", migrated_sqlite_url)
    Storage(source.resolved_storage_url).write("evaluations/e/runs-0", b"outputs")
    back_up(source, tmp_path / "copy")
    path = tmp_path / "copy" / damaged
    flip_a_byte(path, -1)
    target = instance(tmp_path, "target", f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(HostFault, match=f"is damaged: {damaged}"):
        bring_back(target, tmp_path / "copy")
    assert not (tmp_path / "other.db").exists()
    assert list(Storage(target.resolved_storage_url).keys("evaluations")) == []


def test_next_backup_links_what_never_changes_and_copies_splits(tmp_path: Path, migrated_sqlite_url: str) -> None:
    source = instance(tmp_path, "source", migrated_sqlite_url)
    storage = Storage(source.resolved_storage_url)
    for key in ("submissions/ab/abc", "splits/s/public/manifest.json"):
        storage.write(key, b"first")
    back_up(source, tmp_path / "one")
    storage.write("submissions/cd/cde", b"new")
    storage.write("splits/s/public/manifest.json", b"again")
    made = back_up(source, tmp_path / "two", previous=tmp_path / "one")
    assert (made.files, made.bytes) == (3, 13)
    files = [tmp_path / name / "storage" for name in ("one", "two")]
    assert files[0].joinpath("submissions/ab/abc").samefile(files[1] / "submissions/ab/abc")
    assert (files[1] / "splits/s/public/manifest.json").read_bytes() == b"again"
    shutil.rmtree(tmp_path / "one")
    verify(source, tmp_path / "two")


@pytest.mark.usefixtures("_client_programs")
def test_verify_restores_and_leaves_nothing(migrated_url: str, tmp_path: Path) -> None:
    source = instance(tmp_path, "source", migrated_url)
    back_up(source, tmp_path / "copy")
    databases = names_of_databases(migrated_url)
    assert verify(source, tmp_path / "copy") == 0
    assert names_of_databases(migrated_url) == databases
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("lethe-restore")] == []


def names_of_databases(url: str) -> list[str]:
    if url.startswith("sqlite"):
        return []
    database = Database(url)
    with database.read() as session:
        names = session.execute(text("SELECT datname FROM pg_database ORDER BY 1")).scalars().all()
    database.dispose()
    return list(names)


def test_verify_names_a_file_that_rows_name_and_the_backup_lacks(tmp_path, monkeypatch, redis_url, migrated_sqlite_url):
    with running(monkeypatch, database_url=migrated_sqlite_url, redis_url=redis_url, folder=tmp_path) as one:
        one.competition()
        sent = one.submit(one.participant()).json()
    settings = get_settings()
    lost = tmp_path / "gone"
    with pytest.raises(HostFault, match=r"lacks \d files that its rows name, among them splits/digits"):
        verify(settings, made_backup(settings, lost))
    assert sent["id"]


@pytest.fixture
def scored(tmp_path, monkeypatch, redis_url, migrated_sqlite_url):
    """Yield an instance with a scored submission, and the file of its stored result."""
    with running(monkeypatch, database_url=migrated_sqlite_url, redis_url=redis_url, folder=tmp_path / "one") as one:
        one.competition()
        submission = one.submit(one.participant()).json()["id"]
        one.score(submission, 0.5)
        with one.database.write() as session:
            shard = session.scalars(select(Shard)).one()
            shard.kind = "runs"
            shard.result_key, shard.result_sha256 = "evaluations/e/0-1.safetensors", sha256(b"outputs")
            one.storage.write(shard.result_key, b"outputs")
            for split in session.scalars(select(Split)):
                manifest = json.dumps({"files": {"hidden/labels": {"sha256": sha256(b"labels")}}}).encode()
                folder = f"splits/digits/{split.visibility}"
                split.manifest_sha256 = one.storage.write(f"{folder}/manifest.json", manifest)
                one.storage.write(f"{folder}/hidden/labels", b"labels")
        yield get_settings(), tmp_path / "one" / "storage"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("damaged", ["evaluations/e/0-1.safetensors", "splits/digits/public/hidden/labels"])
def test_copy_of_a_damaged_file_is_not_verified(scored: tuple[Settings, Path], tmp_path: Path, damaged: str) -> None:
    settings, storage = scored
    assert verify(settings, made_backup(settings, tmp_path / "whole")) == 6
    (storage / damaged).write_bytes(b"0utputs")
    with pytest.raises(DamagedStorage, match=f"not what the database says: {damaged}"):
        verify(settings, made_backup(settings, tmp_path / "copy"))


def test_series_says_that_the_instance_is_damaged_and_repairs_it(scored, tmp_path, monkeypatch):
    settings, storage = scored
    series = tmp_path / "series"
    (storage / "evaluations/e/0-1.safetensors").write_bytes(b"0utputs")
    monkeypatch.setattr(backup, "datetime", at_hour(0))
    with pytest.raises(DamagedStorage, match="runs of 1 damaged results are made again"):
        back_up_in_series(settings, series, keep=3)
    [kept] = series.iterdir()
    assert (kept / "DAMAGED").read_text() == "evaluations/e/0-1.safetensors\n"
    with Database(settings.resolved_database_url) as database, database.read() as session:
        assert session.scalars(select(Shard.state)).one() == "queued"
        assert session.scalars(select(Evaluation.state)).one() == "scored"
    monkeypatch.setattr(backup, "datetime", at_hour(1))
    new, _ = back_up_in_series(settings, series, keep=3)
    assert list(series.iterdir()) == [new]


def made_backup(settings: Settings, folder: Path) -> Path:
    back_up(settings, folder)
    return folder


def test_series_keeps_the_newest_and_each_is_whole(tmp_path, migrated_sqlite_url, monkeypatch):
    source = instance(tmp_path, "source", migrated_sqlite_url)
    Storage(source.resolved_storage_url).write("submissions/ab/abc", b"code")
    series = tmp_path / "series"
    for hour in range(4):
        monkeypatch.setattr(backup, "datetime", at_hour(hour))
        back_up_in_series(source, series, keep=2)
    assert sorted(path.name for path in series.iterdir()) == ["2026-01-01T020000Z", "2026-01-01T030000Z"]
    for each in series.iterdir():
        verify(source, each)


def test_series_copies_again_what_is_damaged_on_its_disk(tmp_path, migrated_sqlite_url, monkeypatch):
    source = instance(tmp_path, "source", migrated_sqlite_url)
    Storage(source.resolved_storage_url).write("submissions/ab/abc", b"code")
    series = tmp_path / "series"
    monkeypatch.setattr(backup, "datetime", at_hour(0))
    first, _ = back_up_in_series(source, series, keep=3)
    (first / "storage" / "submissions" / "ab" / "abc").write_bytes(b"cods")
    for hour in (1, 2):
        monkeypatch.setattr(backup, "datetime", at_hour(hour))
        new, _ = back_up_in_series(source, series, keep=3)
        assert (new / "storage" / "submissions" / "ab" / "abc").read_bytes() == b"code"
        verify(source, new)


def test_series_keeps_nothing_that_is_not_whole(tmp_path, migrated_sqlite_url, monkeypatch):
    source = instance(tmp_path, "source", migrated_sqlite_url)
    Storage(source.resolved_storage_url).write("submissions/ab/abc", b"code")
    series = tmp_path / "series"
    killed, other = series / "2025-12-31T000000Z", series / "by hand for Z"
    for folder in (killed, other):
        folder.mkdir(parents=True)
        (folder / "lethe.db").write_bytes(b"a part")
    with monkeypatch.context() as broken:
        broken.setattr(Storage, "read", lambda _self, key: (_ for _ in ()).throw(HostFault(f"no {key}")))
        with pytest.raises(HostFault, match="no submissions/ab/abc"):
            back_up_in_series(source, series, keep=2)
    assert list(series.iterdir()) == [other], "nothing of what was broken off fills the disk"
    new, _ = back_up_in_series(source, series, keep=2)
    assert sorted(series.iterdir()) == sorted([new, other])


@pytest.mark.usefixtures("_client_programs")
def test_backup_of_a_silent_server_ends_and_that_of_a_slow_one_does_not(
    tmp_path: Path, migrated_postgres_url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_copy, "CHECK_INTERVAL_S", 0.2)
    monkeypatch.setattr(database_copy, "UNRESPONSIVE_AFTER_S", 1.0)
    with (
        black_hole(postgres_server.folder / ".s.PGSQL.5432") as proxy,
        psycopg.connect(migrated_postgres_url) as holder,
        psycopg.connect(migrated_postgres_url, autocommit=True) as observer,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.execute("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE")
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{make_url(migrated_postgres_url).database}"
        made = pool.submit(back_up, instance(tmp_path, "source", url), tmp_path / "copy")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name='pg_dump' AND wait_event_type='Lock'"
        wait_until(lambda: observer.execute(waiting).fetchone() == (1,))
        time.sleep(3)
        assert not made.done(), "PostgreSQL answers: whatever the dump waits for may come"
        with proxy.silent():
            assert isinstance(made.exception(60), HostFault)
            assert "PostgreSQL was silent" in str(made.exception())


def at_hour(hour: int) -> type[datetime]:
    class Fixed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime(2026, 1, 1, hour, tzinfo=tz)

    return Fixed
