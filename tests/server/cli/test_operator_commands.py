"""Commands of operators: a database that is away, services of systemd, passwords, archives, and a worker's address."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from lethe.cli import main
from lethe.cli.main import build_app
from lethe.errors import HostFault, InvalidInput
from server.cli import install_service, serve
from server.cli.serve import ORGANISER, PARTICIPANT, kept_password, log_in_lines
from server.config import Settings, get_settings
from server.db import Database
from server.maintenance import backup
from server.maintenance.backup import Copied
from server.migrate import is_migrated
from tests.support.ports import free_port
from worker.remote.pool import TOKEN_VARIABLE, take_token


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


CODE = Path(__file__).parents[3]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return what systemctl is asked, with the user's folder and the instance's in a temporary one."""
    words: list[tuple[str, ...]] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in {"HOME": str(tmp_path / "a home"), "HOST": "127.0.0.1", "PORT": "8123"}.items():
        monkeypatch.setenv(f"LETHE_{name}", value)
    monkeypatch.setattr(install_service, "_systemctl", lambda *given: words.append(given))
    get_settings.cache_clear()
    return words


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("home", ["plain", "with a space and 100% $HOME"])
def test_systemd_accepts_the_units(tmp_path: Path, home: str) -> None:
    settings = Settings(home=tmp_path / home, port=8123)
    folder = tmp_path / "units"
    folder.mkdir()
    texts = install_service.unit_texts(settings, code=CODE)
    for name, unit in texts.items():
        (folder / name).write_text(unit)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", *(str(folder / name) for name in texts)],
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert not [line for line in found.stderr.splitlines() if str(folder) in line or "lethe" in line], found.stderr


def test_a_service_is_written_and_removed(asked: list[tuple[str, ...]], tmp_path: Path) -> None:
    done = CliRunner().invoke(build_app(), ["install-service"])
    assert done.exit_code == 0, done.output
    assert "http://127.0.0.1:8123" in done.output
    assert "Log in as organiser / " in done.output
    folder = tmp_path / ".config" / "systemd" / "user"
    assert {path.name for path in folder.iterdir()} == set(install_service.UNITS)
    assert (tmp_path / "a home" / "lethe.db").exists()
    assert json.loads((tmp_path / "a home" / "instance.json").read_text()) == {"url": "http://127.0.0.1:8123"}
    assert asked == [("daemon-reload",), ("enable", "--now", "lethe.target")]
    assert CliRunner().invoke(build_app(), ["install-service", "--remove"]).exit_code == 0
    assert not list(folder.iterdir())
    assert asked[2] == ("disable", "--now", "lethe.target", *install_service.UNITS[:-1])
    assert (tmp_path / "a home" / "lethe.db").exists()


def test_print_changes_nothing(asked: list[tuple[str, ...]], tmp_path: Path) -> None:
    done = CliRunner().invoke(build_app(), ["install-service", "--print"])
    assert re.findall(r"^# .*/(lethe\S+)$", done.output, flags=re.MULTILINE) == list(install_service.UNITS)
    assert not asked
    assert not (tmp_path / ".config").exists()


@pytest.mark.usefixtures("asked")
def test_removing_nothing_says_so() -> None:
    found = CliRunner().invoke(build_app(), ["install-service", "--remove"])
    assert isinstance(found.exception, HostFault)
    assert "there is no service" in found.exception.detail


def test_passwords_are_printed_again(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    passwords = {name: kept_password(settings, name) for name in (ORGANISER, PARTICIPANT, "baseline")}
    lines = log_in_lines(settings)
    assert lines[:2] == [f"Log in as {name} / {passwords[name]}" for name in (ORGANISER, PARTICIPANT)]
    assert "lethe reset-password" in lines[2]
    assert log_in_lines(settings) == lines


def test_instance_without_a_demo_has_no_participant(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    kept_password(settings, ORGANISER)
    assert not any(PARTICIPANT in line for line in log_in_lines(settings))
    assert PARTICIPANT not in (tmp_path / "credentials.json").read_text()


def test_later_start_prints_the_demos_participant(server, monkeypatch, capsys):
    get_settings().home.mkdir(mode=0o700)
    password = kept_password(get_settings(), PARTICIPANT)

    @contextmanager
    def running(_settings: Settings):  # type: ignore[no-untyped-def]
        yield SimpleNamespace(url="http://127.0.0.1:1")

    monkeypatch.setattr(serve, "running", running)
    monkeypatch.setattr(serve, "wait_for_interrupt", lambda _instance: None)
    serve.serve()
    shown = capsys.readouterr().out
    assert f"Log in as {PARTICIPANT} / {password}" in shown
    assert f"Log in as {ORGANISER} / {kept_password(get_settings(), ORGANISER)}" in shown


HEAVY = ("alembic", "celery", "cryptography", "fastapi", "numpy", "redis", "sqlalchemy", "torch")


def test_command_line_starts_without_optional_imports() -> None:
    code = f"import sys, lethe.cli.main; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_export_says_that_there_is_no_database(tmp_path: Path) -> None:
    told = CliRunner().invoke(build_app(), ["export", "digits", str(tmp_path / "a.zip")])
    assert told.exit_code != 0
    assert "lethe up" in str(told.exception) + told.output
    assert not (get_settings().home / "lethe.db").exists(), "asking makes nothing"


def test_import_makes_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"no archive")
    told = CliRunner().invoke(build_app(), ["import", str(archive)])
    assert told.exit_code != 0
    assert "no such table" not in str(told.exception) + told.output
    assert is_migrated(get_settings().resolved_database_url)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--server", "http://lethe.example.org"], "unencrypted: use https://"),
        (["--server", "lethe.example.org"], "has the form https://host"),
        (["--server", "https://lethe.example.org"], "No worker token is set"),
        (["--server", "http://127.0.0.1:1"], "No worker token is set"),
        (["--server", "http://lethe.example.org", "--insecure"], "No worker token is set"),
    ],
)
def test_worker_refuses_an_open_address_and_a_missing_token(words: list[str], reason: str) -> None:
    refused = CliRunner().invoke(build_app(), ["worker", *words])
    assert isinstance(refused.exception, InvalidInput)
    assert reason in refused.exception.detail


def test_token_is_removed_from_the_inherited_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, " lethe_worker_x\n")
    assert take_token().get_secret_value() == "lethe_worker_x"
    program = f"import os; print({TOKEN_VARIABLE!r} in os.environ)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
