"""Operator commands before a database that is away, refuses, or has another schema: one sentence, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from lethe.cli import main
from server.config import get_settings
from server.db import Database
from server.maintenance import backup
from server.maintenance.backup import Copied
from tests.support.ports import free_port


def printed_error(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that a command which fails prints."""
    get_settings.cache_clear()
    monkeypatch.setattr(sys, "argv", ["lethe", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return captured.err


@pytest.mark.parametrize("words", [["gc"], ["migrate"], ["workers"], ["cordon", "host", "--reason", "repair"]])
def test_database_that_is_away_is_named(words, monkeypatch, capsys):
    monkeypatch.setenv("LETHE_DATABASE_URL", f"postgresql://lethe:secret@127.0.0.1:{free_port()}/lethe")
    printed = printed_error(words, monkeypatch, capsys)
    assert "Connection refused" in printed
    assert "lethe doctor" in printed
    assert "secret" not in printed


def test_database_without_tables_is_to_be_migrated(postgres_url, monkeypatch, capsys):
    for url in (postgres_url, ""):
        monkeypatch.setenv("LETHE_DATABASE_URL", url)
        assert "lethe migrate" in printed_error(["gc"], monkeypatch, capsys)


def test_garbage_of_a_newer_version_is_not_judged(migrated_sqlite_url, monkeypatch, capsys):
    database = Database(migrated_sqlite_url)
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    database.dispose()
    monkeypatch.setenv("LETHE_DATABASE_URL", migrated_sqlite_url)
    assert "nothing was removed" in printed_error(["gc", "--delete"], monkeypatch, capsys)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk, which needs root")
def test_full_disk_is_named_and_leaves_no_half_of_a_database(tmp_path, migrated_sqlite_url, monkeypatch, capsys):
    whole, disk = tmp_path / "whole", tmp_path / "disk"
    monkeypatch.setenv("LETHE_DATABASE_URL", migrated_sqlite_url)
    backup.back_up(get_settings(), whole)
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", disk], check=True)
    try:
        assert "full" in printed_error(["backup", str(disk / "copy")], monkeypatch, capsys)
        (disk / "copy" / "lethe.db").unlink()
        monkeypatch.setenv("LETHE_DATABASE_URL", f"sqlite:///{disk / 'lethe.db'}")
        assert "full" in printed_error(["restore", str(whole)], monkeypatch, capsys)
        assert not (disk / "lethe.db").exists(), "it would be taken for the instance's"
    finally:
        subprocess.run(["umount", disk], check=True)


def test_scheduled_backup_outlives_a_database_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made an hour later then, and not a day later."""
    ends: list[BaseException | None] = [OperationalError("", {}, Exception("silent")), None]
    pauses_s: list[float] = []

    def make(_settings: object, folder: Path, *, keep: int) -> tuple[Path, Copied]:
        if (end := ends.pop(0)) is not None:
            raise end
        return folder / f"{keep}", Copied("sqlite", 0, 0)

    def pause(seconds: float) -> None:
        pauses_s.append(seconds)
        if not ends:
            raise KeyboardInterrupt

    monkeypatch.setattr(backup, "back_up_in_series", make)
    monkeypatch.setattr("time.sleep", pause)
    monkeypatch.setattr("server.cli.maintenance._note", lambda *_: None)
    monkeypatch.setattr("server.cli.maintenance.gc", lambda **_: None)
    done = CliRunner().invoke(main.build_app(), ["scheduled-backup", str(tmp_path), "--every-hours", "24"])
    assert pauses_s == [3600, 24 * 3600]
    assert "tried again in 1 h" in done.output
    assert "verified" in done.output
