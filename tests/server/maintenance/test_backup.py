"""A backup brings back rows and files, on both databases."""

import os
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from lethe.errors import HostFault
from server.config import Settings
from server.db import Database
from server.errors import Conflict
from server.maintenance.backup import back_up, bring_back
from server.storage import Storage
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
def test_backup_brings_back_every_row_and_file(
    migrated_url: str, tmp_path: Path, postgres_server: PostgresServer
) -> None:
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


def test_backup_into_a_folder_with_something_in_it_is_refused(tmp_path: Path, migrated_sqlite_url: str) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()
    with pytest.raises(Conflict, match="not empty"):
        back_up(instance(tmp_path, "source", migrated_sqlite_url), tmp_path / "copy")


def test_broken_off_backup_is_not_restored(tmp_path: Path, migrated_sqlite_url: str) -> None:
    source = instance(tmp_path, "source", migrated_sqlite_url)
    back_up(source, tmp_path / "copy")
    (tmp_path / "copy" / "backup.json").unlink()
    with pytest.raises(Conflict, match="no whole backup"):
        bring_back(source, tmp_path / "copy")


def test_restore_over_a_database_is_refused(tmp_path: Path, migrated_sqlite_url: str) -> None:
    source = instance(tmp_path, "source", migrated_sqlite_url)
    back_up(source, tmp_path / "copy")
    with pytest.raises(Conflict, match="exists"):
        bring_back(source, tmp_path / "copy")


@pytest.mark.parametrize("damaged", ["storage/evaluations/e/runs-0", "lethe.db"])
def test_damaged_backup_is_not_restored(tmp_path: Path, migrated_sqlite_url: str, *, damaged: str) -> None:
    """The same number of bytes, and one of them another."""
    source = instance(tmp_path, "source", migrated_sqlite_url)
    Storage(source.resolved_storage_url).write("evaluations/e/runs-0", b"outputs")
    back_up(source, tmp_path / "copy")
    path = tmp_path / "copy" / damaged
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x01
    path.write_bytes(content)
    target = instance(tmp_path, "target", f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(HostFault, match=f"is damaged: {damaged}"):
        bring_back(target, tmp_path / "copy")
    assert not (tmp_path / "other.db").exists()
    assert list(Storage(target.resolved_storage_url).keys("evaluations")) == []
