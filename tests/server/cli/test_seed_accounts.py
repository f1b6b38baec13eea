"""What a start prints, needs and imports."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from server.cli import serve
from server.cli.serve import ORGANISER, PARTICIPANT, kept_password, log_in_lines
from server.config import Settings, get_settings
from server.migrate import is_migrated


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
